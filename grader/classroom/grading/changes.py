"""What changed between two gradings of one unit, exercise by exercise, as a table."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from grader.report import markdown
from grader.results import points
from grader.results.base import DECIMALS
from grader.results.models import ExerciseResult, ItemResult, Results

MOST_NAMED = 4  # items with a changed verdict that are named


@dataclass(frozen=True)
class Change:
    """One exercise, or all of a unit, before and after."""

    name: str
    before: float
    after: float
    verdicts: str = ""

    @property
    def differs(self) -> bool:
        """Whether anything changed."""
        return bool(self.verdicts or round(self.before - self.after, DECIMALS))

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        """The row of a table."""
        by = self.after - self.before
        difference = f"{'+' if by > 0 else ''}{points.text(by) if by >= 0 else '-' + points.text(-by)}"
        return (self.name, points.text(self.before), points.text(self.after), difference, self.verdicts)


def between(before: Results, after: Results) -> list[Change]:
    """Return the exercises that changed, and the unit's points last, changed or not."""
    first, second = _exercises(before), _exercises(after)
    found = []
    for name in dict.fromkeys([*first, *second]):
        one, other = first.get(name), second.get(name)
        change = Change(name, _points(one), _points(other), _verdicts(one, other))
        if change.differs:
            found.append(change)
    return [*found, Change("all", before.points, after.points)]


def table(rows: Iterable[tuple[str, list[Change]]]) -> str:
    """Return a table; each input is a student's unit, such as `ada/lab1`, and its changes."""
    cells = [(name, *change.cells) for name, changes in rows for change in changes]
    return markdown.table(("unit", "exercise", "before", "after", "change", "verdicts"), cells, "llrrrl")


def _exercises(results: Results) -> dict[str, ExerciseResult]:
    return {exercise.name: exercise for lab in results.labs for exercise in lab.exercises}


def _points(exercise: ExerciseResult | None) -> float:
    return math.fsum(item.points for item in exercise.items) if exercise else 0.0


def _verdicts(before: ExerciseResult | None, after: ExerciseResult | None) -> str:
    first, second = _items(before), _items(after)
    found = [
        f"{name}: {_label(first.get(name))}, then {_label(second.get(name))}"
        for name in dict.fromkeys([*first, *second])
        if _label(first.get(name)) != _label(second.get(name))
    ]
    more = f"; {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return "; ".join(found[:MOST_NAMED]) + more


def _items(exercise: ExerciseResult | None) -> dict[str, ItemResult]:
    return {item.id.partition("/")[2]: item for item in exercise.items} if exercise else {}


def _label(item: ItemResult | None) -> str:
    return item.label if item else "not graded"
