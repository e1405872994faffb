"""Compute points again from stored measurements, with the points and thresholds that the labs have now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from grader.classroom.platforms.merge import scored as with_sums
from grader.course.items import SPEED, Item
from grader.course.spec import Verdict
from grader.course.symptoms import Symptom
from grader.grading import collect
from grader.results import scoring
from grader.results.models import ExerciseResult, ItemResult, LabResult, Results
from grader.results.outcome import Outcome

THRESHOLD = (Verdict.PASS, Verdict.SLOW)  # of a timed shape: which of them it is depends on `passing_at`
Items = Mapping[tuple[str, str], Item]  # by the lab's folder and the item's id


class RescoreError(Exception):
    """Points cannot be computed again from what is stored; the message says why."""


def by_id(items: Iterable[Item]) -> Items:
    """Return the items that a lab asks for now, for `rescored`."""
    return {(item.entry.folder.name, item.id): item for item in items}


def rescored(results: Results, items: Items) -> Results:
    """Return the results with the points of now; nothing is graded.

    Raises RescoreError if an item is stored that is not asked for now, or asked for that was never measured.
    """
    labs = {lab.folder for lab in results.labs}
    stored = {(lab.folder, item.id) for lab, _, item in results.every_item()}
    asked = {key for key in items if key[0] in labs}
    for found, words in ((stored - asked, "is no longer in the lab"), (asked - stored, "was never measured")):
        if found:
            folder, name = sorted(found)[0]
            more = f", and {len(found) - 1} more" if len(found) > 1 else ""
            raise RescoreError(f"{folder}: {name} {words}{more}; make class grades it")
    return with_sums(results.model_copy(update={"labs": tuple(_lab(lab, items) for lab in results.labs)}))


def _lab(lab: LabResult, items: Items) -> LabResult:
    exercises = tuple(_exercise(lab.folder, exercise, items) for exercise in lab.exercises)
    return lab.model_copy(update={"exercises": exercises})


def _exercise(folder: str, exercise: ExerciseResult, items: Items) -> ExerciseResult:
    asked = [items[folder, stored.id] for stored in exercise.items]
    decided = [_decided(stored, item) for stored, item in zip(exercise.items, asked, strict=True)]
    answers = [(item, _outcome(stored), 0.0) for stored, item in zip(decided, asked, strict=True)]
    scored = collect.scored(asked[0].exercise, answers)
    return exercise.model_copy(update={"items": _with_points(decided, scored)})


def _with_points(decided: Sequence[ItemResult], scored: Sequence[ItemResult]) -> tuple[ItemResult, ...]:
    return tuple(
        stored.model_copy(update={"points": new.points, "max_points": new.max_points})
        for stored, new in zip(decided, scored, strict=True)
    )


def _outcome(stored: ItemResult) -> Outcome:
    share = float(stored.verdict is Verdict.PASS)
    return Outcome(stored.verdict, stored.reason, share, undecided=stored.undecided, timing=stored.timing)


def _decided(stored: ItemResult, item: Item) -> ItemResult:
    """Return a timed shape with the thresholds of now and the verdict that follows; others unchanged."""
    speed, timing = item.exercise.speed, stored.timing
    if stored.kind != SPEED or timing is None or speed is None:
        return stored
    thresholds = {
        "zero_at_percent": speed.zero_at,
        "passing_at_percent": speed.passing_at,
        "full_at_percent": speed.full_at,
    }
    found = stored.model_copy(update={"timing": timing.model_copy(update=thresholds)})
    if stored.verdict not in THRESHOLD:
        return found
    verdict = scoring.speed_verdict(timing.percent_of_baseline, speed)
    return found if verdict is stored.verdict else found.model_copy(update=_told(verdict, item))


def _told(verdict: Verdict, item: Item) -> dict[str, object]:
    if verdict is Verdict.PASS:
        return {"verdict": verdict, "cause": "", "hint": None}
    from grader.judge import diagnosis  # imports torch

    slow = diagnosis.cause_of(item.entry.lab, Symptom.SLOW)
    return {"verdict": verdict, "cause": slow.cause, "hint": slow.hint}
