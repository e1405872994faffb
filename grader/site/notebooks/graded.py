"""Run the grader for one item: a case of an answer, or the kernels that one of its calls compiles to."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from grader.codegen.kernel_facts import CompiledKernel
from grader.course import catalog
from grader.course.items import CODEGEN, CORRECTNESS, Item, graded_items
from grader.course.spec import Verdict
from grader.judge.run import Run
from grader.report.terminal import explain
from grader.worker.session import Session

SEED = 1  # the same inputs, and so the same output, at every build


def judged(lab: int, exercise: str, case: str, file: str) -> str:
    """Return the report on one case, "n=127,fp32", of a file below the lab's folder in solutions/."""
    item = _question(lab, exercise, CORRECTNESS, case)
    with _submitted(item, file) as tree, closing(_run(tree, "cpu")) as run:
        run.warm([item])
        return "\n".join(explain(item, run.answer(item)))


def compiled(
    lab: int, exercise: str, arch: int, source: str = "solutions", file: str = ""
) -> list[CompiledKernel]:
    """Return the kernels that one call of an exercise launches, compiled for sm_`arch`.

    The answer is the one in `source`, labs or solutions, or `file` below the lab's folder in solutions/.
    RuntimeError with the text of the report if nothing was launched.
    """
    item = _question(lab, exercise, CODEGEN)
    with _submitted(item, file, source) as tree, closing(_run(tree, "codegen", arch)) as run:
        run.warm([item])
        outcome = run.answer(item)
        kernels = run.kernels(item) if outcome.verdict in (Verdict.PASS, Verdict.WRONG) else []
    if not kernels:
        raise RuntimeError(
            "\n".join([f"{exercise} of {source} launched no kernel:", *explain(item, outcome)])
        )
    return kernels


def cases(lab: int, exercise: str, dtype: str = "fp32") -> list[str]:
    """Return the names of the cases of an exercise with one dtype."""
    found = (
        one for one in graded_items(_entry(lab)) if one.kind == CORRECTNESS and one.exercise.name == exercise
    )
    return [one.name for one in found if one.case.dtype == dtype]


def _entry(lab: int) -> catalog.Entry:
    return next(entry for entry in catalog.find() if entry.number == lab)


def _question(lab: int, exercise: str, kind: str, name: str = "") -> Item:
    """Return the first item of a kind, or the item with that name; LookupError if there is none."""
    for one in graded_items(_entry(lab)):
        if (one.exercise.name, one.kind) == (exercise, kind) and name in ("", one.name):
            return one
    raise LookupError(f"lab {lab} has no item {exercise}, {kind} {name}".rstrip())


@contextmanager
def _submitted(item: Item, file: str, source: str = "solutions") -> Iterator[Path]:
    """Yield a tree with `file` in the place of a student's answer; without a file the tree `source`."""
    if not file:
        yield catalog.ROOT / source
        return
    with tempfile.TemporaryDirectory(prefix="answer-") as folder:
        target = item.entry.submission(Path(folder), item.exercise)
        target.parent.mkdir(parents=True)
        shutil.copyfile(catalog.ROOT / "solutions" / item.entry.folder.name / file, target)
        yield Path(folder)


def _run(tree: Path, tier: str, arch: int = 90) -> Run:
    return Run(tree, tier, seed=SEED, gpu=None, arch=arch, session=_session())


@functools.cache
def _session() -> Session:
    """Return one session for the whole notebook, because its fork servers take seconds to start."""
    session = Session("cpu", seed=SEED)
    atexit.register(session.close)
    return session
