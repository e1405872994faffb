"""Log one step: store the prediction, measure a copy of the kernel, then write the entry."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from grader.measure.bench.record import BenchRecord, SizeRecord
from grader.measure.kernel_log import check, ncu
from grader.measure.kernel_log.files import choose, snapshot
from grader.measure.kernel_log.markdown import HEAD, render
from grader.measure.kernel_log.record import Measured, Record, Timing, op_of, timing_from
from grader.measure.kernel_log.store import (
    FILE_BYTES,
    FOLDER,
    MARKDOWN,
    MARKDOWN_BYTES,
    PENDING,
    RECORD,
    LogError,
    Stored,
    before,
    folders,
    read,
    steps,
)
from grader.measure.kernel_log.tools import Size, Tools
from grader.system.files import replace
from grader.system.text import one_line, printable

PREVIOUS = "previous"  # stem, and so name of the arm, of the step that it is compared with
LONGEST = 2000  # characters of a prediction
NOT_THE_KERNEL = ("more memory than is free", "has no function")  # in what `bench.run.child` exits with
ASK = (
    "say what you expect and why, in at least three words: "
    'make log STEP="one load of 16 bytes in place of four: fewer instructions, the same time"'
)


def log(
    tree: Path,
    prediction: str,
    tools: Tools,
    file: Path | None = None,
    size: Size | None = None,
    say: Callable[[str], None] = print,
) -> Record:
    """Log one step of the kernel in `file`, or in the file that was changed last.

    A kernel that is wrong or has no time is logged with that status. Raises LogError if the step cannot be
    logged, for example because the file does not compile.
    """
    prediction = _checked(prediction)
    earlier, path = steps(tree), choose(tree, file)
    name, number = path.relative_to(tree.resolve()).as_posix(), len(earlier) + 1
    say(f"step {number}: {name}{'' if file else ', the kernel that was changed last'}")
    with _stage(tree, number) as stage, tempfile.TemporaryDirectory() as scratch:
        files = snapshot(path, stage)
        # A copy is measured: running a file leaves caches beside it, which the snapshot must not have.
        ours = _copied(stage, files, Path(scratch) / "ours", path.name)
        compiled = tools.compile(ours, Path(scratch)) if path.suffix == ".cu" else []
        prediction = _store(tree, prediction, files, tools, say)
        found = _measure(tools, op_of(name), ours, before(earlier, op_of(name)), size, files[path.name])
        record = Record(
            number=number,
            file=name,
            files=files,
            prediction=prediction,
            compiled=compiled,
            previous=earlier[-1].sha256 if earlier else "",
            **found,
        )
        record.save(stage / RECORD)
        stage.rename(tree / FOLDER / f"{number:04}")
    (tree / FOLDER / PENDING).unlink()
    rewrite(tree)
    if record.counters is None:
        say(record.counters_missing)
    return record


def rewrite(tree: Path) -> None:
    """Render KERNEL_LOG.md again from the records; text outside of the blocks is kept."""
    path = tree / MARKDOWN
    data = read(path, MARKDOWN_BYTES) if path.exists() else HEAD.encode()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise LogError(f"{MARKDOWN} is not UTF-8; nothing was written") from None
    replace(path, render(text, steps(tree)))


def _checked(prediction: str) -> str:
    prediction = printable(prediction).strip()
    if check.trivial(prediction):
        raise LogError(ASK)
    if len(prediction) > LONGEST:
        raise LogError(f"a prediction has at most {LONGEST} characters, this one {len(prediction)}")
    return prediction


@contextlib.contextmanager
def _stage(tree: Path, number: int) -> Iterator[Path]:
    """Create a folder that a rename turns into the step's own; it is removed if that does not happen."""
    folders(tree)  # refuses a link
    root = tree / FOLDER
    root.mkdir(exist_ok=True)
    stage = root / f".{number:04}.part"
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir()
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _copied(folder: Path, names: Mapping[str, str], target: Path, main: str, stem: str = "") -> Path:
    """Copy the files of a snapshot into a new folder; `stem` renames the kernel."""
    target.mkdir()
    kernel = target / (f"{stem}{Path(main).suffix}" if stem else main)
    for name in names:
        (kernel if name == main else target / name).write_bytes(read(folder / name, FILE_BYTES))
    return kernel


def _store(tree: Path, prediction: str, files: dict[str, str], tools: Tools, say: Callable) -> str:
    """Store the prediction before anything is measured; an earlier one for the same files is kept."""
    path = tree / FOLDER / PENDING
    with contextlib.suppress(LogError, ValueError, KeyError, TypeError):
        stored = json.loads(read(path, FILE_BYTES))
        kept = printable(str(stored["prediction"])).strip()[:LONGEST]
        if stored["files"] == files and not check.trivial(kept):
            if kept != prediction:
                say(f"these files already have a prediction, which is kept: {one_line(kept)}")
            return kept
    pending = {"date": _date(tools), "prediction": prediction, "files": files}
    replace(path, json.dumps(pending, indent=1))
    return prediction


def _date(tools: Tools) -> str:
    return tools.now().isoformat(timespec="seconds")


def _measure(
    tools: Tools, name: str, ours: Path, base: Stored | None, asked: Size | None, digest: str
) -> dict:
    """Run the bench and the profiler on a kernel; return fields of its record."""
    op, scratch = tools.op(name), ours.parent.parent
    size = dict(asked or op.quick[-1])
    if set(size) != set(op.quick[-1]):
        raise LogError(f"the size of {name} needs exactly {', '.join(op.quick[-1])}")
    earlier = base and _copied(
        base.folder, base.record.files, scratch / "earlier", base.record.name, PREVIOUS
    )
    measured = tools.bench(name, ours, earlier, size)
    found = timed(measured, op, base.record.size if base else None, size, digest)
    if found["status"] == "ok":
        profile = tools.profile(name, ours, found["size"], scratch)
    else:
        profile = ncu.Profile(None, f"not profiled: the kernel is {found['status']}")
    added, removed = check.lines_changed(ours, base)
    return found | {
        "op": name,
        "date": _date(tools),
        "machine": measured.machine,
        "cuda": measured.cuda,
        "compared_with": base.record.number if base else 0,
        "lines_added": added,
        "lines_removed": removed,
        "counters": profile.kernels,
        "counters_missing": profile.missing[:300],
    }


def timed(measured: BenchRecord, op, size_before: Size | None, asked: Size, digest: str) -> dict:
    """Return status, size and timing; LogError if the file that was measured has not the hash `digest`."""
    if not measured.ops:
        raise LogError(one_line(f"nothing was measured: {'; '.join(measured.skipped)}"))
    (one,) = measured.ops
    if one.file_sha256 != digest:
        raise LogError("the bench did not measure the file of the snapshot; nothing was logged")
    if not one.sizes or "ours" not in one.sizes[0].arms:
        reason = one_line("; ".join(one.troubles) or "the bench has no figure for it")
        if any(words in reason for words in NOT_THE_KERNEL):
            raise LogError(f"nothing was logged: {reason}")
        return {"status": "failed", "reason": reason, "size": asked, "timing": None}
    found = one.sizes[0]
    work = op.flops(found.size) or op.bytes_moved(found.size)
    arms = arms_of(found, alike=size_before == found.size)
    timing = Timing(**timing_from(op.unit, found.method, work, *arms))
    return {"status": timing.ours.status, "reason": timing.ours.reason, "size": found.size, "timing": timing}


def arms_of(found: SizeRecord, alike: bool) -> tuple[Measured | None, ...]:
    """Return ours, the previous step if it had the same size, and the fastest baseline, with their rounds."""

    def arm(name: str) -> Measured | None:
        one = found.arms.get(name)
        if one is None:
            return None
        rounds = one.all_rounds_us if one.status == "ok" else []
        return Measured(name=name, status=one.status, reason=one_line(one.reason), rounds_us=rounds)

    return arm("ours"), arm(PREVIOUS) if alike else None, arm(found.baseline) if found.baseline else None
