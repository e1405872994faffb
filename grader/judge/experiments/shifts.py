"""Say that a constant added to an input changes the result, where by mathematics it must not.

A metamorphic relation (Chen, Cheung and Yiu, Metamorphic testing, 1998): softmax of x + c is softmax of x.
Which inputs have it is found with the reference. A file that computes exp(x) without subtracting the maximum
is right for usual values, and breaks the relation for large ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from grader.course.spec import Case, Exercise
from grader.judge import comparison
from grader.judge.inputs import in_dtype, tensors
from grader.judge.trial import Trial, elements
from grader.worker.shared_memory import TORCH_DTYPES
from grader.worker.submission_worker import SubmissionWorker

SHIFTS = (10.0, 100.0, 1000.0, -100.0, -1000.0)
MOST_ELEMENTS = 1 << 18  # of a case that is tried
SAME = 1e-9  # relative norm of the change of a result in fp64 that is none


def breaking_shift(worker: SubmissionWorker, exercise: Exercise, right: Sequence[Case]) -> str:
    """Say which constant changes the result of the first of some `right` cases; "" if none does.

    Of fp32 cases alone: a shift by these constants leaves digits enough. They run in the interpreter.
    """
    cases = [case for case in right if _is_plain(case)]
    if not cases or exercise.follow is not None:
        return ""
    # In a case of one column, or one key, much changes nothing that changes others.
    largest = max((one for one in exercise.cases if _is_plain(one)), key=elements)
    widest = Trial(exercise, largest, worker.session.seed)
    for name, value in tensors(Trial(exercise, cases[0], worker.session.seed).values).items():
        for shift in SHIFTS:
            trial = Trial(exercise, cases[0], worker.session.seed)
            if not all(_is_invariant(exercise, one, name, shift) for one in (trial, widest)):
                break
            shifted = (value.double() + shift).to(TORCH_DTYPES[cases[0].dtype])
            trial.values = {**trial.values, name: shifted}
            trial.expected = comparison.expect(exercise, cases[0], trial.values)
            if trial.right(worker) < 1.0:
                does = f"adding {shift:g} to" if shift > 0.0 else f"subtracting {-shift:g} from"
                return (
                    f"{does} every element of `{name}` must not change the result, and spoils it: "
                    "first subtract, over the valid elements only, what keeps numbers small: the maximum "
                    "before exp, the mean before squares"
                )
    return ""


def _is_plain(case: Case) -> bool:
    is_small = not (case.needs_gpu or case.is_far) and elements(case) <= MOST_ELEMENTS
    return case.dtype == "fp32" and not case.layouts and is_small


def _is_invariant(exercise: Exercise, trial: Trial, name: str, shift: float) -> bool:
    wide = in_dtype(trial.values, torch.float64)
    other = exercise.reference(**{**wide, name: wide[name] + shift})
    return all(
        bool((one - two).norm() <= SAME * one.norm())
        for one, two in zip(trial.expected.reference, other, strict=True)
    )
