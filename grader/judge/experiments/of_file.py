"""Which experiments are made with a file that no edit mends, and for which of its wrong cases they speak."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from grader.course.spec import PLAIN, Case, Exercise, Reason, Verdict
from grader.judge.experiments.programs import mistaken_programs
from grader.judge.experiments.strides import Laid, mistaken_strides
from grader.judge.inputs import output_shapes
from grader.judge.shapes import shapes_of
from grader.judge.trial import elements
from grader.results.outcome import Outcome
from grader.worker.submission_worker import SubmissionWorker

MOST_ELEMENTS = 1 << 19  # of a case that is called, by the product of its sizes
FEWEST_ELEMENTS = 64
MOST_KINDS = 2  # of wrong cases
PROGRAMS_S = 1.0  # after which no further case is launched with other numbers of programs


class Failed(NamedTuple):
    """A wrong case: the id of its item, what was asked, and what was answered."""

    id: str
    case: Case
    outcome: Outcome

    @property
    def can_be_called(self) -> bool:
        """Whether it runs in the interpreter, and its sizes may be shown."""
        return not (self.case.needs_gpu or self.case.is_far or self.case.label)


def by_experiment(worker: SubmissionWorker, exercise: Exercise, failed: Sequence[Failed]) -> dict[str, str]:
    """Return causes by the id of an item; cases that no experiment explains are left out.

    `worker` has the unedited file.
    """
    found = _by_strides(worker, exercise, failed)
    if worker.start():  # a call may have ended its process
        return found
    return found | _by_programs(worker, exercise, [one for one in failed if one.id not in found])


def _by_strides(worker: SubmissionWorker, exercise: Exercise, failed: Sequence[Failed]) -> dict[str, str]:
    called = [one.case for one in failed if one.can_be_called and elements(one.case) <= MOST_ELEMENTS]
    found = mistaken_strides(worker, exercise, _telling(called))
    if found is None:
        return {}
    said = {one.id: found.cause(_strides(exercise, one.case).__getitem__) for one in failed}
    return {name: cause for name, cause in said.items() if cause}


def _telling(cases: Sequence[Case]) -> list[Case]:
    """Return first the cases in which strides show most: with a layout of their own, a small and a large one.

    In a small case a kernel may have but one block along an axis, and never step to the next. Where no output
    is passed its strides are those of a contiguous tensor.
    """
    order = sorted(cases, key=lambda case: (case.allocates, not case.layouts, elements(case)))
    own = sum(bool(case.layouts) and not case.allocates for case in order)
    large = order.pop(own - 1) if own > 1 else None
    return [*order[:1], *([large] if large else []), *order[1:]]


def _strides(exercise: Exercise, case: Case) -> Mapping[str, Laid]:
    """Return how each tensor of a case is laid out."""
    shapes = shapes_of(exercise, case)
    sizes = {name: shape for name, shape in shapes.items() if isinstance(shape, tuple)}
    every = {**sizes, **output_shapes(exercise, shapes)}
    return {
        name: Laid(case.layouts.get(name, PLAIN).strides(shape), PLAIN.strides(shape))
        for name, shape in every.items()
    }


def _by_programs(worker: SubmissionWorker, exercise: Exercise, failed: Sequence[Failed]) -> dict[str, str]:
    """Look at cases of each kind: elements not written, outside, or wrong."""
    found: dict[str, str] = {}
    until = time.monotonic() + PROGRAMS_S
    for kind in list(dict.fromkeys(_kind(one) for one in failed))[:MOST_KINDS]:
        alike = [one for one in failed if _kind(one) == kind]
        called = [one.case for one in alike if one.can_be_called and elements(one.case) <= MOST_ELEMENTS]
        for case in _few(called):
            if worker.start() or time.monotonic() > until:  # a call may have ended its process
                return found
            # In memory of the file's own it would not be seen which elements are stored twice.
            words = mistaken_programs(worker, exercise, replace(case, allocates=False))
            if words:
                same = _with_same_mistake(worker, exercise, alike, case)
                found |= {one.id: f"{words} ({_sizes(case)})" for one in same}
                break
    return found


def _with_same_mistake(
    worker: SubmissionWorker, exercise: Exercise, alike: Sequence[Failed], told: Case
) -> list[Failed]:
    """Return the cases for which the number of programs in case `told` speaks.

    Not those with other values of the inputs, such as zeros with a sign, of which one case is wrong with any
    number of programs: these have another mistake.
    """
    found: list[Failed] = []
    for values in dict.fromkeys(_values(one.case) for one in alike):
        same = [one for one in alike if _values(one.case) == values]
        called = [one.case for one in same if one.can_be_called and elements(one.case) <= MOST_ELEMENTS]
        is_known = values == _values(told) or not called
        if is_known or (
            not worker.start()
            and mistaken_programs(worker, exercise, replace(_few(called)[0], allocates=False))
        ):
            found += same
    return found


def _values(case: Case) -> object:
    return case.params.get("values")


def _few(cases: Sequence[Case]) -> list[Case]:
    """Return the smallest case, and the narrowest: there a grid may be too small along one axis alone."""
    # Of the smallest cases, such as one element, little can be said.
    order = sorted(cases, key=lambda case: (elements(case) < FEWEST_ELEMENTS, elements(case)))
    narrow = sorted(order, key=lambda case: (elements(case) < FEWEST_ELEMENTS, _narrowest(case)))
    return list(dict.fromkeys((*order[:1], *narrow[:1])))


def _narrowest(case: Case) -> int:
    return min((value for value in case.params.values() if type(value) is int), default=0)


def _kind(one: Failed) -> tuple[Verdict, Reason]:
    return one.outcome.verdict, one.outcome.reason


def _sizes(case: Case) -> str:
    return ", ".join(f"{name}={value}" for name, value in case.params.items() if type(value) is int)
