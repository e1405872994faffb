"""Files whose verdict is known, graded before a class: a machine that gets one wrong grades nobody.

The good one is graded, and timed, once for each GPU: these tasks come first, so that each worker takes one.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable
from pathlib import Path

from grader import catalog
from grader.batch.layout import RunFolder, UnitFolder
from grader.batch.models import KnownResult, SelfTest, State, TaskRecord
from grader.batch.wanted import Collected
from grader.batch.work import Task
from grader.results import Results, now
from grader.spec import Verdict
from grader.specimens import Specimen, read

UNIT = "lab1_elementwise_add"
GOOD = f"solutions/{UNIT}/elementwise_add.py"
WRONG = f"solutions/{UNIT}/wrong/store_without_mask.py"
# Unscreened, so that it is the judge and the confinement that must see through them.
CHEATS = (
    "grader/tests/cheats/a04_exit_in_the_function.py",
    "grader/tests/cheats/a17_hidden_files_read.py",
    "grader/tests/cheats/b05_replay_by_shape.py",
    "grader/tests/cheats/c01_decoy_kernel.py",
    "grader/tests/cheats/d07_network.py",
)
FEW = "correctness and 129"  # of the cases, as `-k` takes it
TIMED = f"{FEW} or speed"


def missing(root: Path = catalog.ROOT) -> list[str]:
    """What of the self-test is not in this checkout: in one for students nothing of it is."""
    return [name for name in (GOOD, WRONG, *CHEATS) if not (root / name).is_file()]


def tasks(
    run: RunFolder, units: Iterable[Collected], like: Task, workers: int
) -> list[tuple[Task, tuple[str, ...]]]:
    """Gradings of the known files, each with the verdicts that it may get; for so many workers at once."""
    unit = next(one.unit for one in units if one.unit.name == UNIT)
    stem = Path(GOOD).stem
    found = [
        (GOOD, stem if one == 1 else f"{stem}-{one}", ("PASS",), TIMED, ()) for one in range(1, workers + 1)
    ]
    wrong = read(catalog.ROOT / WRONG)
    found.append((WRONG, Path(WRONG).stem, wrong.screened, FEW, ()))
    for name in CHEATS:
        cheat: Specimen = read(catalog.ROOT / name)
        found.append((name, Path(name).stem, cheat.unscreened, FEW, ("--no-screen",)))
    made = []
    for name, called, expected, keyword, options in found:
        folder = run.root / "state" / "selftest" / called
        shutil.rmtree(folder, ignore_errors=True)
        target = folder / "files" / UNIT / "elementwise_add.py"
        target.parent.mkdir(parents=True)
        shutil.copyfile(catalog.ROOT / name, target)
        task = dataclasses.replace(
            like, student=called, unit=unit, blind=False, keyword=keyword, hidden=None,
            files=str(folder / "files"), folder=str(folder), options=options, fingerprint="",
        )  # fmt: skip
        made.append((task, expected))
    return made


def judge(ended: Iterable[tuple[Task, TaskRecord]], expected: dict[str, tuple[str, ...]]) -> SelfTest:
    """What the known files got, beside what they must get."""
    known = []
    for task, record in ended:
        got = _said(task) if record.state is State.GRADED else f"{record.state.value}: {record.what}"
        wanted = expected[task.student]
        known.append(
            KnownResult(
                name=task.student,
                expected=list(wanted),
                got=got,
                held=got in wanted,
                seconds=record.seconds,
                accelerator=record.accelerator,
            )
        )
    known.sort(key=lambda one: one.name)
    held = len(known) == len(expected) and all(one.held for one in known)
    return SelfTest(date=now(), held=held, known=known)


def _said(task: Task) -> str:
    """The verdict of the first item that did not pass."""
    results = Results.model_validate_json(UnitFolder(Path(task.folder)).results.read_bytes())
    items = [item for lab in results.labs for exercise in lab.exercises for item in exercise.items]
    graded = [item for item in items if item.verdict is not Verdict.NOT_GRADED]
    first = next((item for item in graded if item.verdict is not Verdict.PASS), None)
    if first is None:
        return "PASS" if graded else "NOT_GRADED"
    return first.verdict.value + (f"/{first.reason}" if first.reason else "")
