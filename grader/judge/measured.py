"""How a wrong result relates to the right one: a factor, an offset, another order, a sign, digits.

What is said holds in every wrong case that was called, and was measured: it is no cause, and leads to one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from grader.course.spec import Case, Exercise
from grader.judge import comparison
from grader.judge.trial import MOST_ELEMENTS, Trial, elements
from grader.worker.submission_worker import SubmissionWorker

FEWEST = 8  # elements that a relation of a whole result, or of a row, is measured on
CLOSE = {"fp32": 1e-4, "fp16": 4e-3, "bf16": 3e-2}  # of a value that follows a relation
EXPLAINED = 0.05  # of the error that may be left, when a relation is taken out of it
MOST_CALLED = 12  # cases, spread over all that are wrong: what holds in these is said of all
WHOLE, ROW, COLUMN = (0, 1), (1,), (0,)  # the axes along which a factor or an offset is one number


class Seen(NamedTuple):
    """A result of a wrong case and the right one, in fp64 as matrices of rows, and which elements are bad."""

    got: torch.Tensor
    expected: torch.Tensor
    bad: torch.Tensor
    dtype: str = "fp32"

    @classmethod
    def of(cls, got: torch.Tensor, expected: torch.Tensor, bad: torch.Tensor, dtype: str = "fp32") -> Seen:
        """Make matrices of tensors of any shape; a vector is one row."""
        shape = (-1, got.shape[-1]) if got.dim() else (1, 1)
        return cls(got.double().reshape(shape), expected.double().reshape(shape), bad.reshape(shape), dtype)

    def follows(self, values: torch.Tensor) -> bool:
        """Return whether the result is these values but for rounding, and so explains its error."""
        size = self.expected.abs().max()
        if not bool(size.isfinite()):  # everything is near to infinity
            return False
        near = (self.got - values).abs() <= CLOSE[self.dtype] * (values.abs() + 1e-2 * size)
        left = (self.got - values).norm() <= EXPLAINED * (self.got - self.expected).norm()
        return bool(near.all()) and bool(left)


Relation = Callable[[Sequence[Seen]], str]


def measured(results: Sequence[Seen], telling: bool = False) -> str:
    """Return in words what holds for all wrong results, the most special relation; "" if nothing does.

    If `telling`, of the relations alone that are as good as a cause.
    """
    if results and all(map(_is_only_a_sign_of_zero, results)):
        return (
            "only the sign of zeros is wrong: 0.0 + -0.0 is 0.0, so a sum that begins at 0.0, and not with "
            "its first term, loses the sign"
        )
    if not results or not all(bool(one.got.isfinite().all()) for one in results):
        return ""
    if not any(one.got.numel() >= FEWEST for one in results):
        return ""
    relations = TELLING if telling else RELATIONS
    return next((words for relation in relations if (words := relation(results))), "")


def _is_only_a_sign_of_zero(seen: Seen) -> bool:
    bad = seen.bad
    return bool(bad.any()) and bool((seen.got[bad] == 0.0).all()) and bool((seen.expected[bad] == 0.0).all())


def measured_of_file(
    worker: SubmissionWorker, exercise: Exercise, failing: Sequence[Case], telling: bool = False
) -> str:
    """Call the worker's present file for wrong cases that run here, and say how its results relate.

    See `measured` for `telling`.
    """
    if exercise.follow is not None:  # what is expected follows from a random choice
        return ""
    results: list[Seen] = []
    outputs: set[str] = set()
    runs = [one for one in failing if not (elements(one) > MOST_ELEMENTS or one.is_far or one.needs_gpu)]
    for case in runs[:: 1 + len(runs) // MOST_CALLED]:
        trial = Trial(exercise, case, worker.session.seed)
        called = trial.call(worker)
        if called is None:
            return ""
        finding, _ = comparison.examine(exercise, case, trial.expected, called.outputs, called.untouched)
        if finding is None:
            continue
        k = exercise.outputs.index(finding.output)
        if bool(called.untouched[k].any()):
            return ""
        outputs.add(finding.output)
        results.append(Seen.of(called.outputs[k], trial.expected.reference[k], finding.bad, case.dtype))
    return measured(results, telling) if len(outputs) == 1 else ""


def _sign(results: Sequence[Seen]) -> str:
    return "each value has the wrong sign" if all(one.follows(-one.expected) for one in results) else ""


def _zeros(results: Sequence[Seen]) -> str:
    wrong = torch.cat([one.got[one.bad] for one in results])
    return "all wrong values are 0" if len(wrong) >= FEWEST and not bool(wrong.any()) else ""


def _power(results: Sequence[Seen]) -> str:
    if all(one.follows(one.expected.square()) for one in results):
        return "each value is the square of what is expected"
    if all(one.follows(one.expected.abs().sqrt()) for one in results):
        return "each value is the square root of what is expected"
    return ""


def _factor(axes: tuple[int, ...], words: str) -> Relation:
    def relation(results: Sequence[Seen]) -> str:
        found: list[float] = []
        for one in results:
            values = (one.got * one.expected).sum(axes, keepdim=True) / one.expected.square().sum(
                axes, keepdim=True
            )
            if not bool(values.isfinite().all()) or not one.follows(values * one.expected):
                return ""
            found += values.flatten().tolist() if _is_measured(one, axes) else []
        several = "all elements of a case have one factor:" if axes == WHOLE else words
        numbers = _numbers(found) if found else ""
        return f"{several if ' ' in numbers else words} {numbers} times what is expected" if found else ""

    return relation


def _offset(axes: tuple[int, ...], words: str) -> Relation:
    def relation(results: Sequence[Seen]) -> str:
        found: list[float] = []
        for one in results:
            values = (one.got - one.expected).mean(axes, keepdim=True)
            if not one.follows(values + one.expected):
                return ""
            found += values.flatten().tolist() if _is_measured(one, axes) else []
        return f"the result less what is expected is the same for {words}: {_numbers(found)}" if found else ""

    return relation


def _is_measured(one: Seen, axes: tuple[int, ...]) -> bool:
    """Return whether there are enough elements to say that they have one number."""
    return math.prod(one.got.shape[axis] for axis in axes) >= FEWEST


def _row_sums(results: Sequence[Seen]) -> str:
    """Say what rows sum to that should sum to 1, where each row has a factor of its own."""
    if not _factor(ROW, "")(results):
        return ""
    if not all(bool(((one.expected.sum(1) - 1.0).abs() < 1e-3).all()) for one in results):
        return ""
    found = [total for one in results for total in one.got.sum(1).tolist()]
    return f"each row sums to {_numbers(found)} and not to 1, and its elements have the right proportions"


def _blocks(results: Sequence[Seen]) -> str:
    """Say that each block of a row has a factor of its own; of the largest such blocks."""
    if all(one.got.shape[0] == 1 for one in results):  # a vector is one row, and nothing in it need be a sum
        return ""
    longest = max(one.got.shape[1] for one in results)
    for block in (1 << power for power in range(longest.bit_length() - 1, 3, -1)):
        found = [_of_blocks(one, block) for one in results]
        if None not in found and any(found):
            return (
                f"in a row, each block of {block} columns is right but for a factor of its own: its sum, or "
                "its maximum, is not that of the whole row, but of one block alone, or of another row"
            )
    return ""


def _of_blocks(one: Seen, block: int) -> bool | None:
    """Return whether two or more blocks of a row have factors of their own; None if that is not so.

    False where a row has but one block, and a few columns more.
    """
    values, factors = torch.empty_like(one.got), list[torch.Tensor]()
    for begin in range(0, one.got.shape[1], block):
        part = slice(begin, begin + block)
        got, expected = one.got[:, part], one.expected[:, part]
        each = (got * expected).sum(1) / expected.square().sum(1)
        values[:, part] = each[:, None] * expected
        if got.shape[1] >= FEWEST:  # a few columns always have a factor
            factors.append(each)
    if not factors or one.got.shape[1] <= block:  # a row of one block would be right
        return None
    each = torch.stack(factors)
    spread = (each.max(0).values - each.min(0).values).max()
    several = ((each - 1.0).abs() > CLOSE[one.dtype]).sum(0).max() > 1
    is_apart = float(spread) > CLOSE[one.dtype] and bool(several)
    if not bool(each.isfinite().all()) or not one.follows(values) or (len(factors) > 1 and not is_apart):
        return None
    return is_apart


def _order(results: Sequence[Seen]) -> str:
    """Say that the right values are in other places, and where the first one is."""
    for one in results:
        same = torch.isclose(
            one.got.flatten().sort().values, one.expected.flatten().sort().values, CLOSE[one.dtype], 0.0
        )
        if not bool(same.all()):
            return ""
    one = max(results, key=lambda one: one.got.numel())
    if all(
        bool(torch.equal(one.got.flatten(), one.got.flatten()[:1].expand(one.got.numel()))) for one in results
    ):
        return ""
    if all(one.follows(one.expected.flip(1)) for one in results):
        return "the values are right, and each row has them in the reverse order"
    if all(one.follows(one.expected.flip(0)) for one in results):
        return "the values are right, and the rows are in the reverse order"
    if all(one.got.shape[0] == one.got.shape[1] and one.follows(one.expected.T) for one in results):
        return "the values are right, and rows and columns are exchanged"
    bad = (one.got - one.expected).abs() > CLOSE[one.dtype] * one.expected.abs()
    if not bool(bad.any()):
        return ""
    place = bad.nonzero()[0]
    value = one.got[place[0], place[1]]
    belongs = (one.expected - value).abs().flatten().argmin()
    other = divmod(int(belongs), one.got.shape[1])
    return (
        "the values are right, and in another order: "
        f"{_place(one, (int(place[0]), int(place[1])))} has the value that belongs to {_place(one, other)}"
    )


def _place(one: Seen, index: tuple[int, int]) -> str:
    return f"element {index[1]}" if one.got.shape[0] == 1 else f"row {index[0]}, column {index[1]}"


def _side(results: Sequence[Seen]) -> str:
    """Say that all wrong values are negative where none may be, too small or too large."""
    got = torch.cat([one.got[one.bad] for one in results])
    expected = torch.cat([one.expected[one.bad] for one in results])
    every = torch.cat([one.expected.flatten() for one in results])
    if len(got) < FEWEST:
        return ""
    if bool((got < 0.0).all()) and bool((every >= 0.0).all()):
        return "all wrong values are negative, where none may be"
    if bool((got.abs() < expected.abs()).all()):
        return "all wrong values are nearer to 0 than what is expected"
    if bool((got.abs() > expected.abs()).all()) and bool((got * expected >= 0.0).all()):
        return "all wrong values are farther from 0 than what is expected"
    return ""


def _digits(results: Sequence[Seen]) -> str:
    """Say how many digits are right, where all values are nearly right."""
    worst = max(float((one.got - one.expected).abs().max() / one.expected.abs().max()) for one in results)
    if not 0.0 < worst < 1e-2:
        return ""
    digits = math.floor(-math.log10(worst))
    rounding = " (16 bits have 3)" if digits in (2, 3) and all(one.dtype == "fp32" for one in results) else ""
    return f"the values are right to {digits} digits{rounding}"


def _numbers(values: Sequence[float]) -> str:
    """Return a number, or the range in which numbers lie, with three digits."""
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    return low if low == high else f"{low} to {high}"


RELATIONS: tuple[Relation, ...] = (
    _zeros,
    _sign,
    _factor(WHOLE, "every element is"),
    _offset(WHOLE, "all elements"),
    _order,
    _power,
    _row_sums,
    _blocks,
    _factor(ROW, "every element of a row has one factor:"),
    _offset(ROW, "a whole row"),
    _factor(COLUMN, "every element of a column has one factor:"),
    _offset(COLUMN, "a whole column"),
    _digits,
    _side,
)
TELLING: tuple[Relation, ...] = (_blocks,)
