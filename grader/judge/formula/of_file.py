"""Which formula the wrong outputs of a file follow: they are computed here, in several sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from grader.course.spec import Case, Exercise
from grader.judge import comparison
from grader.judge.formula.search import PLACES, Followed, formula_of, holds
from grader.judge.formula.terms import terms_of
from grader.judge.inputs import in_dtype, output_shapes
from grader.judge.shapes import shapes_of
from grader.judge.trial import Trial, elements
from grader.worker.submission_worker import SubmissionWorker

MOST_ELEMENTS = 1 << 19  # of a case, by the product of its sizes: each is called once or twice
MOST_RESULTS = 1 << 16  # elements of an output
MOST_CASES = 3  # that are looked at, each of another size
FEWEST_CASES = 2  # in one size a mean over a sum is a number, and many formulas say the same


def formula_of_file(worker: SubmissionWorker, exercise: Exercise, failing: Sequence[Case]) -> str:
    """Return in words which formula a wrong output of the worker's present file follows; "" if none is found.

    `failing` are wrong cases that run in the interpreter, the preferred ones first. The formula must hold for
    every element of all that are looked at, and of the first one with two sets of inputs.
    """
    if exercise.follow is not None:  # its outputs depend on a random choice
        return ""
    small = [case for case in failing if results_of(exercise, case) <= MOST_RESULTS]
    output = _first_wrong(worker, exercise, small)
    chosen = of_several_sizes(
        [case for case in small if output and math.prod(_shapes(exercise, case)[output]) >= PLACES]
    )
    if len(chosen) < FEWEST_CASES:
        return ""
    seen: list[Followed] = []
    right: torch.Tensor | None = None
    for case, drawn in [(chosen[0], 0), (chosen[0], 1), *((case, 0) for case in chosen[1:])]:
        trial = Trial(exercise, case, worker.session.seed, drawn=drawn)
        called = trial.call(worker)
        if called is None:
            return ""
        k = exercise.outputs.index(output)
        got = called.outputs[k].double()
        right = trial.expected.reference[k].double() if right is None else right
        terms = terms_of(exercise.reference, in_dtype(trial.values, torch.float64))
        seen.append(Followed(terms, got))
    found = formula_of(*seen[0], others=seen[1:])
    if found and right is not None and holds(found, seen[0].terms, right):
        return ""  # only digits are wrong
    return f"the values in `{output}` are those of `{found.text}`" if found else ""


def _first_wrong(worker: SubmissionWorker, exercise: Exercise, failing: Sequence[Case]) -> str:
    """Return the output that is wrong in the first of these cases; "" if none is."""
    chosen = of_several_sizes(failing)
    if not chosen:
        return ""
    trial = Trial(exercise, chosen[0], worker.session.seed)
    called = trial.call(worker)
    finding = comparison.examine(exercise, chosen[0], trial.expected, called.outputs)[0] if called else None
    return finding.output if finding else ""


def results_of(exercise: Exercise, case: Case) -> int:
    """Return the number of elements of the largest output of a case."""
    return max(math.prod(shape) for shape in _shapes(exercise, case).values())


def _shapes(exercise: Exercise, case: Case) -> dict[str, tuple[int, ...]]:
    return output_shapes(exercise, shapes_of(exercise, case))


def of_several_sizes(failing: Sequence[Case]) -> list[Case]:
    """Return the first case, the largest, and one between: what holds within a block may end behind it."""
    by_size: dict[tuple[object, ...], Case] = {}
    for case in failing:
        if case.dtype == "fp32" and not case.is_far and elements(case) <= MOST_ELEMENTS:
            size = tuple(value for value in case.params.values() if isinstance(value, int))
            by_size.setdefault(size, case)
    first, *more = by_size.values() or [None]
    more.sort(key=lambda case: elements(case) if case else 0)
    picked = [first, *more[-1:], *more[len(more) // 2 : -1]][:MOST_CASES]
    return [case for case in picked if case]
