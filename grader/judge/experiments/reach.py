"""Through which strides a line steps: how its lowest and highest offset change with the stride of one axis.

The function is called with the layout of a failing case, and once more for each stride that the exercise
leaves open, which is larger then. An access to a tensor has to follow that tensor's strides and no other's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from grader.course.signatures import Shape
from grader.course.spec import PLAIN, Case, Exercise
from grader.judge.experiments.work import MOST, work
from grader.judge.trial import Trial
from grader.worker.shared_memory import TORCH_DTYPES
from grader.worker.submission_worker import SubmissionWorker
from grader.worker.witness.record import MOST_REACHES, Reach

# Elements that a stride grows by. A multiple of 16, because a kernel may have another way for rows that do
# not begin at multiples of so many bytes.
STEP = 16


class Axis(NamedTuple):
    """An axis of a tensor of the exercise."""

    name: str
    axis: int


class Place(NamedTuple):
    """A line and the tensor that it accesses; one of the file's own is named as the kernel's parameter."""

    name: str
    is_lent: bool
    shape: Shape
    line: int
    writes: bool


class Followed(NamedTuple):
    """How far a place reaches in the first call, and how often each open stride is in its highest offset."""

    place: Place
    last: int  # elements from the first one of the tensor
    first: int
    times: Mapping[Axis, int]  # open strides that it does not follow have 0


class Steps(NamedTuple):
    """What all lines of one case follow, with shapes and strides of the tensors by name."""

    shapes: Mapping[str, Shape]
    strides: Mapping[str, Shape]
    open: frozenset[Axis]
    followed: Sequence[Followed]


def open_axes(exercise: Exercise, shapes: Mapping[str, Shape]) -> frozenset[Axis]:
    """Return the axes whose strides are not those of a contiguous tensor in some case of the exercise.

    With an axis, those whose strides are larger are open as well.
    """
    found = set[Axis]()
    for case in exercise.cases:
        for name, layout in case.layouts.items():
            shape = shapes.get(name)
            if shape is None or layout.expanded or (layout.swapped and len(shape) != 4):
                continue
            strides, plain = layout.strides(shape), PLAIN.strides(shape)
            changed = [at for at in range(len(shape)) if strides[at] != plain[at] and shape[at] > 1]
            if changed:
                least = min(strides[at] for at in changed)
                found |= {Axis(name, at) for at in range(len(shape)) if strides[at] >= least}
    return frozenset(found)


def spread(shape: Shape, strides: Shape, free: Sequence[int]) -> Shape | None:
    """Return strides as large as these or larger, of which each free one can grow by STEP without an overlap.

    They differ from the given ones by multiples of STEP. None if there are none.
    """
    order = sorted(range(len(shape)), key=lambda axis: (strides[axis], -axis))
    found, span = list(strides), 1
    for axis in order:
        if found[axis] < span:
            if axis not in free:
                return None
            found[axis] += -((found[axis] - span) // STEP) * STEP
        span += (shape[axis] - 1) * (found[axis] + (STEP if axis in free else 0))
    return tuple(found)


def steps(worker: SubmissionWorker, exercise: Exercise, case: Case) -> Steps | None:
    """Call the worker's present file for a case, and once more for each open stride.

    None if a call fails, or if all would take too long.
    """
    plain = Trial(exercise, case, worker.session.seed)
    shapes = {buffer.name: buffer.tensor.shape for buffer in plain.buffers}
    axes = sorted(
        one for one in open_axes(exercise, shapes) if not case.layouts.get(one.name, PLAIN).expanded
    )
    strides = dict[str, Shape]()
    for buffer in plain.buffers:
        free = [one.axis for one in axes if one.name == buffer.name]
        spacious = spread(buffer.tensor.shape, buffer.tensor.strides, free) if free else None
        strides[buffer.name] = spacious or buffer.tensor.strides
        if free and spacious is None:
            axes = [one for one in axes if one.name != buffer.name]
    before = _reached(worker, exercise, case, strides) if axes else None
    if before is None:
        return None
    if work(worker.witnessed) * (len(axes) + 1) > MOST:
        return None
    after = dict[Axis, dict[Place, tuple[int, int]]]()
    for one in axes:
        if shapes[one.name][one.axis] < 2:
            continue
        wider = list(strides[one.name])
        wider[one.axis] += STEP
        found = _reached(worker, exercise, case, {**strides, one.name: tuple(wider)})
        if found is None:
            return None
        after[one] = found
    followed = [_followed(place, reach, after) for place, reach in before.items()]
    return Steps(shapes, strides, frozenset(after), [one for one in followed if one])


def _reached(
    worker: SubmissionWorker, exercise: Exercise, case: Case, strides: Mapping[str, Shape]
) -> dict[Place, tuple[int, int]] | None:
    """Return how far each place reaches in one call; None if it fails, or has more of them than are kept."""
    trial = Trial(exercise, case, worker.session.seed, strides=strides)
    if trial.buffers[-1].stop > worker.arena.size or trial.call(worker, witnessed=True) is None:
        return None
    reaches = worker.witnessed.reaches
    if len(reaches) >= MOST_REACHES:
        return None
    found = dict[Place, tuple[int, int]]()
    for reach in reaches:
        place, moved = _place(trial, reach)
        first, last = reach.first + moved, reach.last + moved
        known = found.get(place, (first, last))
        found[place] = min(known[0], first), max(known[1], last)
    return found


def _place(trial: Trial, reach: Reach) -> tuple[Place, int]:
    """Return the place of a reach, and at which element of its tensor the kernel's one begins."""
    for buffer in trial.buffers:
        if buffer.start <= reach.offset < buffer.stop:
            tensor = buffer.tensor
            moved = (reach.offset - tensor.offset) // TORCH_DTYPES[tensor.dtype].itemsize
            return Place(buffer.name, True, tensor.shape, reach.line, reach.writes), moved
    return Place(reach.tensor.name, False, reach.tensor.shape, reach.line, reach.writes), 0


def _followed(
    place: Place, reach: tuple[int, int], after: Mapping[Axis, Mapping[Place, tuple[int, int]]]
) -> Followed | None:
    """Return what a place follows; None if it is not in every call, or does not follow whole strides."""
    times = dict[Axis, int]()
    for axis, found in after.items():
        if place not in found:
            return None
        share = Fraction(found[place][1] - reach[1], STEP)
        if share.denominator != 1 or share < 0:
            return None
        if axis.name != place.name and found[place][0] != reach[0]:
            return None
        times[axis] = int(share)
    return Followed(place, reach[1], reach[0], times)
