"""Merge the results of two machines: results from a GPU replace what a CPU could not grade."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grader.results import scoring
from grader.results.models import ExerciseResult, ItemResult, LabResult, Results

Key = tuple[str, str, str]  # folder of the lab, exercise, hash of the student's code


def keyed(results: Results) -> dict[Key, ExerciseResult]:
    """Return exercises by lab, name and hash of the code; only results of the same bytes may be exchanged."""
    return {
        (lab.folder, exercise.name, exercise.code_sha256): exercise
        for lab in results.labs
        for exercise in lab.exercises
        if exercise.code_sha256
    }


def merged(results: Results, others: Mapping[Key, ExerciseResult]) -> Results:
    """Return the results, with exercises from `others` if the file is the same and more was graded."""
    labs = [
        lab.model_copy(update={"exercises": tuple(_better(lab, one, others) for one in lab.exercises)})
        for lab in results.labs
    ]
    return scored(results.model_copy(update={"labs": tuple(labs)}))


def _better(lab: LabResult, exercise: ExerciseResult, others: Mapping[Key, ExerciseResult]) -> ExerciseResult:
    other = others.get((lab.folder, exercise.name, exercise.code_sha256))
    if other is None:
        return exercise
    return other if _open(other) < _open(exercise) else exercise


def _open(exercise: ExerciseResult) -> float:
    return scoring.total(exercise.items).not_graded


def scored(results: Results) -> Results:
    """Return the results with points summed from their items."""
    labs = [lab.model_copy(update=_sums(lab.items)) for lab in results.labs]
    return results.model_copy(update={"labs": tuple(labs), **_sums(results.items)})


def _sums(items: Sequence[ItemResult]) -> dict[str, float]:
    total = scoring.total(items)
    return {
        "points": total.earned,
        "graded_points": total.graded,
        "not_graded_points": total.not_graded,
        "max_points": total.most,
    }
