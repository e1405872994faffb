"""Results of two machines in one: what a GPU graded takes the place of what a CPU could not."""

from __future__ import annotations

from collections.abc import Mapping

from grader import scoring
from grader.results import ExerciseResult, LabResult, Results

Key = tuple[str, str, str]  # folder of the lab, exercise, sha256 of the file


def keyed(results: Results) -> dict[Key, ExerciseResult]:
    """Exercises by the very file that was graded: only the same bytes may take each other's place."""
    return {
        (lab.folder, exercise.name, exercise.file_sha256): exercise
        for lab in results.labs
        for exercise in lab.exercises
        if exercise.file_sha256
    }


def merged(results: Results, others: Mapping[Key, ExerciseResult]) -> Results:
    """The results, with each exercise of the same file that another run graded more of."""
    copy = results.model_copy(deep=True)
    for lab in copy.labs:
        lab.exercises = [_better(lab, exercise, others) for exercise in lab.exercises]
    return scored(copy)


def _better(lab: LabResult, exercise: ExerciseResult, others: Mapping[Key, ExerciseResult]) -> ExerciseResult:
    other = others.get((lab.folder, exercise.name, exercise.file_sha256 or ""))
    if other is None:
        return exercise
    return other if _open(other) < _open(exercise) else exercise


def _open(exercise: ExerciseResult) -> float:
    return scoring.total(exercise.items)[2]


def scored(results: Results) -> Results:
    """The results with the sums of their items."""
    copy = results.model_copy(deep=True)
    for lab in copy.labs:
        items = [item for exercise in lab.exercises for item in exercise.items]
        lab.points, lab.graded_points, lab.not_graded_points = scoring.total(items)
        lab.max_points = sum(item.max_points for item in items)
    for name in ("points", "graded_points", "not_graded_points", "max_points"):
        setattr(copy, name, sum(getattr(lab, name) for lab in copy.labs))
    return copy
