"""Compute shapes and sizes of a case without its data."""

from __future__ import annotations

from dataclasses import replace

import torch

from grader.course.signatures import Shapes
from grader.course.spec import Case, Exercise
from grader.judge.correctness import lay_out
from grader.judge.inputs import Placer, output_shapes, shapes_in
from grader.judge.without_dynamo import without_dynamo


class _Meta:
    """An Rng that draws meta tensors, which have a shape and no memory."""

    device, call = "meta", 0

    def normal(self, *shape: int, **_: float) -> torch.Tensor:
        return torch.empty(shape, device="meta")

    uniform = normal

    def integers(self, _low: int, _high: int, *shape: int) -> torch.Tensor:
        return torch.empty(shape, device="meta")

    def whole(self, _bound: int) -> int:
        return 0


def shapes_of(exercise: Exercise, case: Case) -> Shapes:
    """Return the shape of each tensor input of a case; other inputs are returned as they are."""
    with without_dynamo():
        return shapes_in(exercise.inputs(_Meta(), case))


def has_elements(exercise: Exercise, case: Case) -> bool:
    """Return whether any output of a case has an element that can be right or wrong."""
    shapes = output_shapes(exercise, shapes_of(exercise, case))
    return any(0 not in shape for shape in shapes.values())


def slot_bytes(exercise: Exercise, case: Case) -> int:
    """Return the bytes of one call's inputs, outputs and guard bands."""
    placer = Placer()
    lay_out(exercise, case, placer, shapes_of(exercise, case))
    return placer.position


def fit(exercise: Exercise, case: Case, set_bytes: int, calls: int) -> Case | None:
    """Return the case, or a smaller one of its kind, for which `calls` calls fit a buffer set; else None."""
    while slot_bytes(exercise, case) * calls > set_bytes:
        if exercise.speed is None or exercise.speed.smaller is None:
            return None
        case = replace(case, params=exercise.speed.smaller(case.params))
        if min(value for value in case.params.values() if isinstance(value, int)) < 1:
            return None
    return case
