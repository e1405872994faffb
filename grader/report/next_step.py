"""Choose the one thing to do after a run: what failed first, then what is not written, slow or not graded."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from grader.course.spec import Verdict
from grader.results.models import ExerciseResult, ItemResult, LabResult, Results


class Kind(enum.Enum):
    """What a step is about."""

    MEND = "an item is wrong"
    WRITE = "a function is not written"
    FASTER = "a shape is slow"
    AGAIN = "the grader or the machine failed"
    QUIET = "a timing was too noisy to decide"
    ELSEWHERE = "items could not be graded here"
    NOTHING = "all is right"


@dataclass(frozen=True)
class Step:
    """A kind, and where it is not NOTHING the item that it is about, with its lab and exercise."""

    kind: Kind
    lab: LabResult
    exercise: ExerciseResult
    item: ItemResult


def choose(results: Results) -> Step:
    """Return the next step after a run. ValueError if the run has no items."""
    steps = [Step(Kind.NOTHING, *one) for one in results.every_item()]
    if not steps:
        raise ValueError("a run without items has no next step")
    found: dict[Kind, list[Step]] = {}
    for step in steps:
        kind = _kind(step.item)
        found.setdefault(kind, []).append(Step(kind, step.lab, step.exercise, step.item))
    for kind in Kind:
        if kind in found:
            return min(found[kind], key=_percent) if kind is Kind.FASTER else found[kind][0]
    raise AssertionError("each item has a kind")


def _kind(item: ItemResult) -> Kind:
    if item.verdict is Verdict.INCONCLUSIVE:
        return Kind.QUIET if item.points < item.max_points else Kind.NOTHING
    if item.verdict is Verdict.NOT_GRADED:
        return Kind.ELSEWHERE if item.max_points else Kind.NOTHING
    if item.verdict is Verdict.PASS:
        return Kind.NOTHING
    kinds = {
        Verdict.NOT_STARTED: Kind.WRITE,
        Verdict.SLOW: Kind.FASTER,
        Verdict.GRADER_FAULT: Kind.AGAIN,
    }
    return kinds.get(item.verdict, Kind.MEND)


def _percent(step: Step) -> float:
    return step.item.timing.percent_of_baseline if step.item.timing else 0.0
