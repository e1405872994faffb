"""One step of the kernel log: the prediction first, then the measurement of a copy, then the entry."""

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

PREVIOUS = "previous"  # the stem, and so the arm, of the step that is compared with
LONGEST = 2000  # characters of a prediction
NOT_THE_KERNEL = ("more memory than is free", "has no function")  # what ends a process of the bench
ASK = (
    "say what you expect and why, in three words at least: "
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
    """Log one step of the kernel in `file`, or in the one that was changed last; LogError where it cannot be.

    A kernel that is wrong or has no time is logged as that. What does not compile is no step.
    """
    prediction = _told(prediction)
    earlier, path = steps(tree), choose(tree, file)
    name, number = path.relative_to(tree.resolve()).as_posix(), len(earlier) + 1
    say(f"step {number}: {name}{'' if file else ', the kernel that was changed last'}")
    with _stage(tree, number) as stage, tempfile.TemporaryDirectory() as scratch:
        files = snapshot(path, stage)
        # A copy is measured: what runs leaves caches beside its file, and the snapshot holds nothing else.
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
    """Render KERNEL_LOG.md again from the records; what stands outside of the blocks is kept."""
    path = tree / MARKDOWN
    data = read(path, MARKDOWN_BYTES) if path.exists() else HEAD.encode()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise LogError(f"{MARKDOWN} is not UTF-8, nothing was written") from None
    replace(path, render(text, steps(tree)))


def _told(prediction: str) -> str:
    prediction = printable(prediction).strip()
    if check.trivial(prediction):
        raise LogError(ASK)
    if len(prediction) > LONGEST:
        raise LogError(f"a prediction has at most {LONGEST} characters, this one {len(prediction)}")
    return prediction


@contextlib.contextmanager
def _stage(tree: Path, number: int) -> Iterator[Path]:
    """A folder that becomes the step's own by one rename; nothing is left of it where that fails."""
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
    """The files of a snapshot in a folder of their own, the kernel perhaps under another name."""
    target.mkdir()
    kernel = target / (f"{stem}{Path(main).suffix}" if stem else main)
    for name in names:
        (kernel if name == main else target / name).write_bytes(read(folder / name, FILE_BYTES))
    return kernel


def _store(tree: Path, prediction: str, files: dict[str, str], tools: Tools, say: Callable) -> str:
    """Write the prediction down before anything is measured; one for the very same files stands."""
    path = tree / FOLDER / PENDING
    with contextlib.suppress(LogError, ValueError, KeyError, TypeError):
        stored = json.loads(read(path, FILE_BYTES))
        kept = printable(str(stored["prediction"])).strip()[:LONGEST]
        if stored["files"] == files and not check.trivial(kept):
            if kept != prediction:
                say(f"these files have a prediction already, which stands: {one_line(kept)}")
            return kept
    told = {"date": _date(tools), "prediction": prediction, "files": files}
    replace(path, json.dumps(told, indent=1))
    return prediction


def _date(tools: Tools) -> str:
    return tools.now().isoformat(timespec="seconds")


def _measure(
    tools: Tools, name: str, ours: Path, base: Stored | None, asked: Size | None, digest: str
) -> dict:
    """What the bench and the profiler say of a kernel, as fields of its record."""
    op, scratch = tools.op(name), ours.parent.parent
    size = dict(asked or op.quick[-1])
    if set(size) != set(op.quick[-1]):
        raise LogError(f"a size of {name} has {', '.join(op.quick[-1])}, and nothing else")
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
    """Status, size and timing; LogError where the bench did not measure the snapshot, whose hash is given."""
    if not measured.ops:
        raise LogError(one_line(f"nothing was measured: {'; '.join(measured.skipped)}"))
    (one,) = measured.ops
    if one.file_sha256 != digest:
        raise LogError("the bench measured another file than the snapshot, nothing was logged")
    if not one.sizes or "ours" not in one.sizes[0].arms:
        reason = one_line("; ".join(one.troubles) or "the bench has no figure of it")
        if any(words in reason for words in NOT_THE_KERNEL):
            raise LogError(f"nothing was logged: {reason}")
        return {"status": "failed", "reason": reason, "size": asked, "timing": None}
    found = one.sizes[0]
    work = op.flops(found.size) or op.bytes_moved(found.size)
    arms = arms_of(found, alike=size_before == found.size)
    timing = Timing(**timing_from(op.unit, found.method, work, *arms))
    return {"status": timing.ours.status, "reason": timing.ours.reason, "size": found.size, "timing": timing}


def arms_of(found: SizeRecord, alike: bool) -> tuple[Measured | None, ...]:
    """Ours, the step before where it had the same size, and the fastest baseline, with their rounds."""

    def arm(name: str) -> Measured | None:
        one = found.arms.get(name)
        if one is None:
            return None
        rounds = one.all_rounds_us if one.status == "ok" else []
        return Measured(name=name, status=one.status, reason=one_line(one.reason), rounds_us=rounds)

    return arm("ours"), arm(PREVIOUS) if alike else None, arm(found.baseline) if found.baseline else None
