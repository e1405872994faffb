"""Compare two gradings of the same files: verdicts, points, and percent of the baseline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from grader.course.items import SPEED
from grader.report.terminal import word
from grader.results.models import ItemResult, Results


@dataclass(frozen=True)
class Pair:
    """One item in two gradings."""

    unit: str
    exercise: str
    first: ItemResult
    second: ItemResult

    @property
    def changed(self) -> str:
        """The change of an untimed item's verdict, in words; empty if it did not change."""
        if self.first.kind == SPEED or word(self.first) == word(self.second):
            return ""
        return f"{self.first.id}: {word(self.first)}, then {word(self.second)}"

    @property
    def points(self) -> float:
        """Absolute difference in points."""
        return abs(self.first.points - self.second.points)

    @property
    def percent(self) -> float | None:
        """Absolute difference of a timed item, in percent of its baseline; None if one was not timed."""
        first, second = self.first.timing, self.second.timing
        return abs(first.percent_of_baseline - second.percent_of_baseline) if first and second else None


def pairs(first: Results, second: Results) -> Iterator[Pair]:
    """Yield pairs of items. Raises ValueError if the two gradings have different items."""
    left, right = _items(first), _items(second)
    if left.keys() != right.keys():
        raise ValueError("the two gradings have different items")
    for key, (exercise, item) in left.items():
        yield Pair(key[0], exercise, item, right[key][1])


def _items(results: Results) -> dict[tuple[str, str], tuple[str, ItemResult]]:
    return {(lab.folder, item.id): (exercise.name, item) for lab, exercise, item in results.every_item()}
