"""Two gradings of the same files side by side: verdicts, points, and percent of the baseline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from grader.questions import SPEED
from grader.report import word
from grader.results import ItemResult, Results

TIMES = {"date", "seconds", "began", "finished", "accelerator", "machines", "lost", "results_sha256", "seal"}
PLACES = {"command", "source"}  # name the run folder


@dataclass(frozen=True)
class Pair:
    """One item of two gradings."""

    unit: str
    exercise: str
    first: ItemResult
    second: ItemResult

    @property
    def changed(self) -> str:
        """How the verdict of an item that is not timed differs, in words; empty where it does not."""
        if self.first.kind == SPEED or word(self.first) == word(self.second):
            return ""
        return f"{self.first.id}: {word(self.first)}, then {word(self.second)}"

    @property
    def points(self) -> float:
        """Difference in points."""
        return abs(self.first.points - self.second.points)

    @property
    def percent(self) -> float | None:
        """Difference of a timed item, in percent of its baseline; None where one was not timed."""
        both = [item.figures.get("percent") for item in (self.first, self.second)]
        return None if None in both else abs(both[0] - both[1])


def pairs(first: Results, second: Results) -> Iterator[Pair]:
    """Item by item; ValueError where the two do not hold the same ones."""
    left, right = dict(_items(first)), dict(_items(second))
    if left.keys() != right.keys():
        raise ValueError("the two gradings did not ask the same")
    for key, (exercise, item) in left.items():
        yield Pair(key[0], exercise, item, right[key][1])


def _items(results: Results):
    for lab in results.labs:
        for exercise in lab.exercises:
            for item in exercise.items:
                yield (lab.folder, item.id), (exercise.name, item)


def without_times(text: str | bytes) -> str:
    """A file of a run folder as text without what differs from run to run by time and place alone."""
    return json.dumps(_stripped(json.loads(text)), indent=1, sort_keys=True)


def _stripped(value):
    if isinstance(value, dict):
        return {key: _stripped(one) for key, one in value.items() if key not in TIMES | PLACES}
    return [_stripped(one) for one in value] if isinstance(value, list) else value
