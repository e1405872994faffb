"""Ask the grader about one thing: a case of an answer, or what one of its calls compiles to."""

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

SEED = 1  # the same inputs, and so the same words, whenever a page is built


def judged(lab: int, exercise: str, case: str, file: str) -> str:
    """What the report says about one case, "n=127,fp32", of a file below the lab's folder in solutions/."""
    item = _question(lab, exercise, CORRECTNESS, case)
    with _submitted(item, file) as tree, closing(_run(tree, "cpu")) as run:
        run.warm([item])
        return "\n".join(explain(item, run.answer(item)))


def compiled(
    lab: int, exercise: str, arch: int, source: str = "solutions", file: str = ""
) -> list[CompiledKernel]:
    """The kernels that one call of an exercise launches, compiled for sm_`arch`: of the answer in `source`,
    labs or solutions, or of `file`, which lies below the lab's folder in solutions/.

    RuntimeError with the report's words where nothing was launched.
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
    """Names of the cases that an exercise is judged by, of one dtype."""
    found = (
        one for one in graded_items(_entry(lab)) if one.kind == CORRECTNESS and one.exercise.name == exercise
    )
    return [one.name for one in found if one.case.dtype == dtype]


def _entry(lab: int) -> catalog.Entry:
    return next(entry for entry in catalog.find() if entry.number == lab)


def _question(lab: int, exercise: str, kind: str, name: str = "") -> Item:
    """The first of a kind, or the one of that name; LookupError where there is none."""
    for one in graded_items(_entry(lab)):
        if (one.exercise.name, one.kind) == (exercise, kind) and name in ("", one.name):
            return one
    raise LookupError(f"lab {lab} asks nothing like {exercise}, {kind} {name}".rstrip())


@contextmanager
def _submitted(item: Item, file: str, source: str = "solutions") -> Iterator[Path]:
    """A tree in which `file` stands where a student's answer would; without a file the tree `source`."""
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
    """One for all that a page asks, as its warm parents take seconds to start."""
    session = Session("cpu", seed=SEED)
    atexit.register(session.close)
    return session
