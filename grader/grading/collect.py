"""Score the outcomes of a run, and collect them as its results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import grader
from grader.course.items import CORRECTNESS, SPEED, CaseItem, Item
from grader.course.spec import Document, Exercise, Verdict
from grader.judge.run import REFERENCE, Run
from grader.results import scoring
from grader.results.machine import machine, now
from grader.results.models import TIMING_PROTOCOL, ExerciseResult, ItemResult, LabResult, Results
from grader.results.outcome import Outcome, result_of

Answer = tuple[Item, Outcome, float]  # the last is the time in seconds
EMPTY = "no elements, and so no points until a case that has some is right"


def collect(
    answered: Sequence[Answer],
    run: Run,
    *,
    command: str,
    seconds: float,
    gpu_missing: str,
) -> Results:
    """Return the results of a run with their points; `seconds` is the time of the whole run."""
    labs = []
    for folder in dict.fromkeys(item.entry.folder for item, _, _ in answered):
        mine = [answer for answer in answered if answer[0].entry.folder == folder]
        labs.append(_lab(mine, run))
    return Results(
        grader=grader.__version__,
        date=now(),
        seconds=round(seconds, 1),
        command=command,
        tier=run.tier,
        source=str(run.source),
        seed=run.seed,
        arch=run.arch,
        assurance=run.assurance,
        assurance_level=run.assurance_level,
        no_gate=run.no_gate,
        machine=machine(run.gpu, gpu_missing),
        timing_protocol=TIMING_PROTOCOL,
        points=math.fsum(lab.points for lab in labs),
        graded_points=math.fsum(lab.graded_points for lab in labs),
        not_graded_points=math.fsum(lab.not_graded_points for lab in labs),
        max_points=math.fsum(lab.max_points for lab in labs),
        labs=tuple(labs),
    )


def _lab(answered: Sequence[Answer], run: Run) -> LabResult:
    entry = answered[0][0].entry
    exercises = []
    for exercise in dict.fromkeys(item.exercise for item, _, _ in answered):
        mine = [answer for answer in answered if answer[0].exercise is exercise]
        graded = run.submission(mine[0][0])
        exercises.append(
            ExerciseResult(
                name=exercise.name,
                file=graded.name if run.source == REFERENCE else exercise.file,
                file_sha256=graded.sha256,
                imports_sha256=run.imports_sha256(mine[0][0]),
                items=scored(exercise, mine),
            )
        )
    points = scoring.total(item for exercise in exercises for item in exercise.items)
    return LabResult(
        folder=entry.folder.name,
        number=entry.number,
        title=entry.lab.title,
        points=points.earned,
        graded_points=points.graded,
        not_graded_points=points.not_graded,
        max_points=points.most,
        exercises=tuple(exercises),
    )


def scored(exercise: Exercise | Document, answered: Sequence[Answer]) -> tuple[ItemResult, ...]:
    """Return the items of one exercise with their points, in the order in which they were graded."""
    speed = _speed_share(exercise, [(item, outcome) for item, outcome, _ in answered])
    answered = _without_points_for_nothing(answered)
    return tuple(
        result_of(item, outcome, speed if item.kind == SPEED and _timed(outcome) else outcome.share, seconds)
        for item, outcome, seconds in answered
    )


def _without_points_for_nothing(answered: Sequence[Answer]) -> Sequence[Answer]:
    """Take the points of cases without elements, which any file gets right, where no other case is right."""
    right = [
        item
        for item, outcome, _ in answered
        if isinstance(item, CaseItem) and item.kind == CORRECTNESS and outcome.verdict is Verdict.PASS
    ]
    if not right:
        return answered
    from grader.judge.shapes import has_elements  # imports torch

    if any(has_elements(item.exercise, item.case) for item in right):
        return answered
    return [
        (
            item,
            replace(outcome, share=0.0, where="" if item.case and item.case.label else EMPTY)
            if item in right
            else outcome,
            seconds,
        )
        for item, outcome, seconds in answered
    ]


def _timed(outcome: Outcome) -> bool:
    """Return whether a shape has a percentage that counts."""
    return outcome.verdict in (Verdict.PASS, Verdict.SLOW) or _as_in_protocol_1(outcome)


def _as_in_protocol_1(outcome: Outcome) -> bool:
    """Return whether a stored outcome counts the better end of its interval."""
    return outcome.verdict is Verdict.INCONCLUSIVE and not outcome.undecided and outcome.timing is not None


def _open(outcome: Outcome) -> bool:
    return outcome.verdict in (*scoring.UNGRADED, Verdict.INCONCLUSIVE)


def _speed_share(exercise: Exercise | Document, answered: Sequence[tuple[Item, Outcome]]) -> float:
    """Return the share of points, 0 to 1, for all timed shapes together: 0 if one of them was wrong.

    A shape that was not decided has no part in it.
    """
    shapes = [outcome for item, outcome in answered if item.kind == SPEED]
    failed = any(not _timed(outcome) and not _open(outcome) for outcome in shapes)
    if exercise.speed is None or failed:
        return 0.0
    timings = [outcome.timing for outcome in shapes if _timed(outcome) and outcome.timing]
    return scoring.speed_share([timing.percent_of_baseline for timing in timings], exercise.speed)
