"""A small summary of a graded lab, for the class page; a class of hundreds fits into memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from grader.course.items import SPEED
from grader.course.spec import Verdict
from grader.report.terminal import word
from grader.results import points, scoring
from grader.results.models import ItemResult, Results
from grader.results.points import Score


@dataclass(frozen=True)
class Item:
    """One case, codegen check or timed shape of one student."""

    kind: str
    name: str
    verdict: Verdict
    word: str  # the cause if known, else verdict and reason
    percent: float | None = None  # of the baseline's speed
    passing_at: float | None = None
    full_at: float | None = None
    baseline: str = ""


@dataclass(frozen=True)
class Exercise:
    """One graded function of one student."""

    name: str
    points: float
    not_graded: float
    max_points: float
    items: tuple[Item, ...]

    @property
    def percent(self) -> float | None:
        """Geometric mean over the timed shapes, not capped; None if one of them has no percentage."""
        timed = [item.percent for item in self.items if item.kind == SPEED]
        if not timed or any(percent is None or percent <= 0 for percent in timed):
            return None
        return scoring.geometric_mean(timed)


def exercises_of(results: Results, score: Score) -> tuple[Exercise, ...]:
    """Return the exercises of a unit with their shares of `score`; the capstone's are concatenated."""
    exercises = [exercise for lab in results.labs for exercise in lab.exercises]
    scores = points.split(score, [exercise.items for exercise in exercises])
    return tuple(
        Exercise(
            exercise.name,
            own.earned / 100,
            own.not_graded / 100,
            own.most / 100,
            tuple(_item(item) for item in exercise.items if not item.blocked),
        )
        for exercise, own in zip(exercises, scores, strict=True)
    )


def _item(item: ItemResult) -> Item:
    found = Item(item.kind, item.name, item.verdict, item.cause or word(item))
    timing = item.timing
    if timing is None or item.undecided:  # a percentage that decides nothing is in no ranking
        return found
    return replace(
        found,
        percent=timing.percent_of_baseline,
        passing_at=timing.passing_at_percent,
        full_at=timing.full_at_percent,
        baseline=timing.baseline,
    )
