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
    comparable: bool = True  # timed by one protocol

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
        """Absolute difference of a timed item, in percent of its baseline.

        None if one was not timed, or if the two were timed by different protocols.
        """
        first, second = self.first.timing, self.second.timing
        if first is None or second is None or not self.comparable:
            return None
        return abs(first.percent_of_baseline - second.percent_of_baseline)


def pairs(first: Results, second: Results) -> Iterator[Pair]:
    """Yield pairs of items. Raises ValueError if the two gradings have different items."""
    left, right = _items(first), _items(second)
    if left.keys() != right.keys():
        raise ValueError("the two gradings have different items")
    comparable = first.timing_protocol == second.timing_protocol
    for key, (exercise, item) in left.items():
        yield Pair(key[0], exercise, item, right[key][1], comparable)


def _items(results: Results) -> dict[tuple[str, str], tuple[str, ItemResult]]:
    return {(lab.folder, item.id): (exercise.name, item) for lab, exercise, item in results.every_item()}
