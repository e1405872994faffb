"""Self-test before a class: grade files with known verdicts; a wrong verdict stops the run.

The correct solution is graded and timed once per GPU; these tasks come first, so that each worker gets one.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable
from pathlib import Path

from grader.classroom.grading.grade_unit import Task
from grader.classroom.intake.expected_files import Collected
from grader.classroom.records import KnownResult, SelfTest, State, TaskRecord
from grader.classroom.run_folder import RunFolder, UnitFolder
from grader.course import catalog
from grader.course.spec import Verdict
from grader.course.specimens import Specimen, read
from grader.results import reading
from grader.results.machine import now

UNIT = "lab1_elementwise_add"
GOOD = f"solutions/{UNIT}/elementwise_add.py"
WRONG = f"solutions/{UNIT}/wrong/store_without_mask.py"
# Graded without the screen, so that the judge and the sandbox must catch them.
CHEATS = (
    "grader/tests/cheats/a04_exit_in_the_function.py",
    "grader/tests/cheats/a17_hidden_files_read.py",
    "grader/tests/cheats/b05_replay_by_shape.py",
    "grader/tests/cheats/c01_decoy_kernel.py",
    "grader/tests/cheats/d07_network.py",
)
FEW = "correctness and 129"  # a few cases, as an argument of `-k`
TIMED = f"{FEW} or speed"


def missing(root: Path = catalog.ROOT) -> list[str]:
    """Return the self-test files that this checkout lacks; a student release has none of them."""
    return [name for name in (GOOD, WRONG, *CHEATS) if not (root / name).is_file()]


def tasks(
    run: RunFolder, units: Iterable[Collected], like: Task, workers: int
) -> list[tuple[Task, tuple[str, ...]]]:
    """Return a task for each known file with its allowed verdicts; the correct one once per worker."""
    unit = next(one.unit for one in units if one.unit.name == UNIT)
    stem = Path(GOOD).stem
    found = [
        (GOOD, stem if one == 1 else f"{stem}-{one}", ("PASS",), TIMED, True) for one in range(1, workers + 1)
    ]
    wrong = read(catalog.ROOT / WRONG)
    found.append((WRONG, Path(WRONG).stem, wrong.screened, FEW, True))
    for name in CHEATS:
        cheat: Specimen = read(catalog.ROOT / name)
        found.append((name, Path(name).stem, cheat.unscreened, FEW, False))
    made = []
    for name, called, expected, keyword, screened in found:
        folder = run.root / "state" / "selftest" / called
        shutil.rmtree(folder, ignore_errors=True)
        target = folder / "files" / UNIT / "elementwise_add.py"
        target.parent.mkdir(parents=True)
        shutil.copyfile(catalog.ROOT / name, target)
        task = dataclasses.replace(
            like, student=called, unit=unit, blind=False, keyword=keyword, hidden=None,
            files=str(folder / "files"), folder=str(folder), screened=screened, fingerprint="",
        )  # fmt: skip
        made.append((task, expected))
    return made


def judge(ended: Iterable[tuple[Task, TaskRecord]], expected: dict[str, tuple[str, ...]]) -> SelfTest:
    """Compare the verdicts of the known files with the expected ones."""
    known = []
    for task, record in ended:
        got = _verdict(task) if record.state is State.GRADED else f"{record.state.value}: {record.what}"
        allowed = expected[task.student]
        known.append(
            KnownResult(
                name=task.student,
                expected=list(allowed),
                got=got,
                held=got in allowed,
                seconds=record.seconds,
                accelerator=record.accelerator,
            )
        )
    known.sort(key=lambda one: one.name)
    held = len(known) == len(expected) and all(one.held for one in known)
    return SelfTest(date=now(), held=held, known=known)


def no_gate(ended: Iterable[Task]) -> str:
    """Return why the calls of one of these tasks ran without a gate; "" if all had one, or no GPU."""
    for task in ended:
        path = UnitFolder(Path(task.folder)).results
        why = reading.read(path).no_gate if path.is_file() else ""
        if why:
            return why
    return ""


def _verdict(task: Task) -> str:
    """Return the verdict of the first item that did not pass, else PASS."""
    results = reading.read(UnitFolder(Path(task.folder)).results)
    graded = [item for item in results.items if item.verdict is not Verdict.NOT_GRADED]
    first = next((item for item in graded if item.verdict is not Verdict.PASS), None)
    if first is None:
        return "PASS" if graded else "NOT_GRADED"
    return first.label
