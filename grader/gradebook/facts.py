"""What the class page needs of a graded lab: small, so that a class of hundreds fits into memory."""

from __future__ import annotations

from dataclasses import dataclass

from grader import scoring
from grader.questions import SPEED
from grader.report import WAITS, word
from grader.results import ItemResult, Results
from grader.spec import Verdict


@dataclass(frozen=True)
class Item:
    """One case, codegen check or timed shape of one student."""

    kind: str
    name: str
    verdict: Verdict
    word: str  # the cause where one is known, else verdict and reason
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
        """Geometric mean over the timed shapes, not capped; None where one of them has no percentage."""
        timed = [item.percent for item in self.items if item.kind == SPEED]
        if not timed or any(percent is None or percent <= 0 for percent in timed):
            return None
        return scoring.geometric_mean(timed)


def exercises_of(results: Results) -> tuple[Exercise, ...]:
    """The exercises of a unit; those of the capstone's folders one after the other."""
    return tuple(
        Exercise(
            exercise.name,
            *_points(exercise.items),
            tuple(_item(item) for item in exercise.items if not item.where.startswith(WAITS)),
        )
        for lab in results.labs
        for exercise in lab.exercises
    )


def _points(items: list[ItemResult]) -> tuple[float, float, float]:
    earned, graded, left = scoring.total(items)
    return earned, left, graded + left


def _item(item: ItemResult) -> Item:
    figures = item.figures
    return Item(
        item.kind, item.name, item.verdict, item.cause or word(item), figures.get("percent"),
        figures.get("passing_at"), figures.get("full_at"), figures.get("baseline", ""),
    )  # fmt: skip
