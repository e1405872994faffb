"""The lines that a class command prints at its end: units by state, regrades, other points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from grader.classroom import records
from grader.classroom.grading import attempts, changes, fingerprint
from grader.classroom.grading.grade_unit import Task
from grader.classroom.grading.plan import Plan, unit_folder
from grader.classroom.records import RunRecord, State, TaskRecord
from grader.classroom.run_folder import RunFolder, UnitFolder
from grader.results import reading

MOST_SHOWN = 8  # regrades that are shown also where nothing changed


def states(folder: RunFolder, run: RunRecord) -> str:
    """Return the number of units by state."""
    found: Counter[str] = Counter()
    for student in run.students:
        for unit in run.units:
            path = folder.student(student).unit(unit.name).task
            found[records.read(path, TaskRecord).state.value if path.exists() else "not requested"] += 1
    return ", ".join(f"{count} {state}" for state, count in sorted(found.items()))


def after(plan: Plan, out: Path) -> Iterator[str]:
    """Yield what changed in units that were graded before, and how many have points of earlier labs."""
    yield from _regraded(plan)
    receipts = [attempts.receipt_of(unit_folder(task)) for task in plan.gradable if not task.blind]
    others = [one for one in receipts if one and not fingerprint.same_lab(one)]
    if others:
        words = "were graded with other points or thresholds than the labs have now"
        yield f"{len(others)} {words}: make rescore OUT={out}"


def _regraded(plan: Plan) -> Iterator[str]:
    """Yield a table of before and after, and which attempt counts."""
    rows, counts = {}, {}
    for task in plan.tasks:
        unit = unit_folder(task)
        earlier, counted = attempts.before(unit, task.attempt), attempts.record_of(unit)
        later = attempts.place_of(unit, task.attempt)
        if task.blind or earlier is None or counted is None or not later.results.exists():
            continue
        rows[task.name] = changes.between(reading.read(earlier.results), reading.read(later.results))
        counts[task.name] = counted.counts
    changed = [name for name, found in rows.items() if any(one.differs for one in found)]
    shown = sorted(rows if len(rows) <= MOST_SHOWN else changed)
    if rows:
        yield f"graded again: {len(rows)}, of which {len(changed)} have other points or verdicts"
    if shown:
        yield changes.table((name, rows[name]) for name in shown)
    yield from (f"{name}: {counts[name]}" for name in shown)


def state_of(task: Task) -> State:
    """Return the state of a task that was graded."""
    return records.read(UnitFolder(Path(task.folder)).task, TaskRecord).state


def some(names: list[str], most: int = 8) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
