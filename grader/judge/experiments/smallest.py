"""Find the smallest call that is wrong, and calls like it that are right.

Delta debugging of a case (Zeller and Hildebrandt, Simplifying and isolating failure-inducing input, 2002):
what is unusual is left out and sizes become smaller, as long as the call stays wrong. A condition that
separates the wrong cases from the right ones has to hold in all calls that were tried as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from grader.course.spec import Case, Exercise
from grader.judge.trial import Trial, elements
from grader.worker.submission_worker import SubmissionWorker

POWERS = tuple(1 << power for power in range(1, 15))
SIZES = tuple(sorted({1, *(size + by for size in POWERS for by in (-1, 0, 1))}))  # blocks, and their tails
MOST_S = 3.0
MOST_ELEMENTS = 1 << 23  # of a call, by the product of its sizes
SEED = "seed"  # a number that is no size


class Smallest(NamedTuple):
    """The smallest wrong call, what is next to it, and all calls that were tried."""

    words: str
    wrong: list[Case]
    right: list[Case]


def smallest_wrong(
    worker: SubmissionWorker, exercise: Exercise, failing: Sequence[Case], most_s: float = MOST_S
) -> Smallest | None:
    """Make a wrong case smaller, for `most_s` seconds; None if no case of `failing` is wrong when called."""
    calls = _Calls(worker, exercise, most_s)
    asked = (one for one in sorted(failing, key=elements) if not (one.needs_gpu or one.is_far or one.label))
    case = next((one for one in asked if elements(one) <= MOST_ELEMENTS and calls.is_wrong(one)), None)
    if case is None:
        return None
    first = case
    for simpler in _simpler(exercise):
        case = next((one for one in simpler(case) if one.name != case.name and calls.is_wrong(one)), case)
    shrunk = None
    while shrunk != case:  # one size may be smaller once another one is
        shrunk = case
        for key, most in _sizes(case).items():
            smaller = (_with(case, key, size) for size in SIZES if size < most)
            case = next((one for one in smaller if calls.is_wrong(one)), case)
    for key, size in _sizes(case).items():  # is it this size alone, or are all above it wrong?
        for larger in (size + 1, 2 * size, 4 * size):
            calls.is_wrong(_with(case, key, larger))
    near = [f"{key}={below}" for key in _sizes(case) if (below := calls.right_below(case, key))]
    words = f"the smallest wrong call is {case.name}"
    if near:
        words += f"; with {' or '.join(near)} it is right"
    return Smallest(words if case.name != first.name or near else "", *calls.both)


class _Calls:
    """Calls of a file, each made once; no more once the time is up."""

    def __init__(self, worker: SubmissionWorker, exercise: Exercise, most_s: float):
        self._worker, self._exercise = worker, exercise
        self._known: dict[str, tuple[Case, bool]] = {}
        self._until = time.monotonic() + most_s

    def is_wrong(self, case: Case) -> bool:
        """Return whether a call is wrong; False for one that cannot be made."""
        if case.name not in self._known:
            if time.monotonic() > self._until or elements(case) > MOST_ELEMENTS or self._worker.start():
                return False
            try:
                trial = Trial(self._exercise, case, self._worker.session.seed)
                is_wrong = trial.right(self._worker, bounds=True) < 1.0
            except Exception:  # the exercise has no such sizes
                return False
            self._known[case.name] = case, is_wrong
        return self._known[case.name][1]

    def right_below(self, case: Case, key: str) -> int:
        """Return the largest smaller size with which the call is right; 0 if none was tried."""
        sizes = (size for size in reversed(SIZES) if size < _sizes(case)[key])
        known = ((size, self._known.get(_with(case, key, size).name)) for size in sizes)
        return next((size for size, found in known if found and not found[1]), 0)

    @property
    def both(self) -> tuple[list[Case], list[Case]]:
        """The calls that were wrong, and those that were right."""
        wrong, right = list[Case](), list[Case]()
        for case, is_wrong in self._known.values():
            (wrong if is_wrong else right).append(case)
        return wrong, right


def _simpler(exercise: Exercise) -> tuple[Callable[[Case], Iterator[Case]], ...]:
    """Return functions that leave something unusual out of a case, in one way or several."""

    def plain(one: Case) -> Iterator[Case]:
        yield replace(one, layouts={})
        for name in one.layouts:
            yield replace(one, layouts={name: one.layouts[name]})

    def passed(one: Case) -> Iterator[Case]:
        yield replace(one, allocates=False)

    def fp32(one: Case) -> Iterator[Case]:
        yield replace(one, dtype="fp32")

    def usual(one: Case) -> Iterator[Case]:
        for key, value in one.params.items():
            others = [other.params for other in exercise.cases]
            if any(key not in params for params in others):
                yield replace(one, params={name: each for name, each in one.params.items() if name != key})
            elif isinstance(value, float):
                values = [params[key] for params in others]
                yield replace(one, params={**one.params, key: max(values, key=values.count)})

    return plain, passed, fp32, usual


def _sizes(case: Case) -> dict[str, int]:
    return {key: size for key, size in case.params.items() if type(size) is int and key != SEED}


def _with(case: Case, key: str, size: int) -> Case:
    return replace(case, params={**case.params, key: size})
