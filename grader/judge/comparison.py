"""Compare outputs with an fp64 reference, with a tolerance derived from PyTorch's own error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from grader.course.signatures import Inputs, Tensors
from grader.course.spec import Case, Exercise, Reason
from grader.course.symptoms import AnySymptom, checked_symptom
from grader.judge.inputs import BITS, in_dtype, same_bits, tensors
from grader.results.findings import FirstWrong
from grader.worker.shared_memory import TORCH_DTYPES

# Relative norm of the error of fp32 arithmetic in any order; far below that of TF32, 3e-4.
NORM_FP32 = 8 * 2.0**-23
# With fewer elements a wrong answer may agree by chance, which happens in a whole class.
FEWEST_FOR_NULLS = 64


@dataclass(frozen=True)
class Finding:
    """Why an output is wrong: reason, first wrong index, values there, and mask of the wrong elements."""

    output: str
    reason: Reason  # UNWRITTEN, NONFINITE, PRECISION, MISMATCH or NONDETERMINISTIC
    index: tuple[int, ...]
    got: float
    expected: float
    bad: torch.Tensor  # bool, shape of the output
    used: float  # worst error divided by the error allowed; more than 1 is wrong
    symptom: AnySymptom | None = None  # of a property that the outputs lack, if the exercise names it

    @property
    def wrong(self) -> int:
        """Return how many elements are wrong."""
        return int(self.bad.sum())

    def first_wrong(self, while_timed: bool = False, first_call: bool = False) -> FirstWrong:
        """Return the first wrong element, as a report shows it."""
        return FirstWrong(
            output=self.output,
            index=self.index,
            yours=f"{self.got:.6g}",
            expected=f"{self.expected:.6g}",
            while_timed=while_timed,
            first_call=first_call,
        )


@dataclass(frozen=True)
class Expected:
    """The expected outputs of one call in fp64, the same rounded once, and the errors allowed."""

    reference: tuple[torch.Tensor, ...]
    rounded: tuple[torch.Tensor, ...]
    allowed: tuple[torch.Tensor, ...]  # absolute error of each element, broadcasts; unused if bitwise
    allowed_norm: tuple[float, ...]  # relative Frobenius norm of the error
    inputs: Inputs = field(default_factory=dict)
    factors: tuple[float, ...] = ()  # by which the exercise's units were multiplied to get `allowed`


def expect(exercise: Exercise, case: Case, inputs: Inputs) -> Expected:
    """Compute the expected outputs of one call, with tolerances calibrated on PyTorch in the case's dtype."""
    wide = in_dtype(inputs, torch.float64)
    reference = tuple(exercise.reference(**wide))
    return calibrate(exercise, case, inputs, wide, reference, exercise.torch_op(**inputs))


def right_by(exercise: Exercise, case: Case, inputs: Inputs, outputs: Tensors, other: Expected) -> bool:
    """Return whether outputs are within the tolerances of a call with `other` inputs of the same case.

    PyTorch need not compute this call for that. For an exercise without a random choice.
    """
    wide = in_dtype(inputs, torch.float64)
    reference = tuple(exercise.reference(**wide))
    close = tuple(value.to(TORCH_DTYPES[case.dtype]) for value in reference)
    allowed = close
    if not case.bitwise:
        units = exercise.tolerance.unit(case, wide, reference)
        allowed = tuple(factor * unit for factor, unit in zip(other.factors, units, strict=True))
    expected = Expected(reference, close, allowed, other.allowed_norm, inputs, other.factors)
    return within(case, expected, outputs)


def rounded(exercise: Exercise, case: Case, inputs: Inputs) -> tuple[torch.Tensor, ...]:
    """Return the outputs that `expect` has in the case's dtype, without their tolerances."""
    reference = exercise.reference(**in_dtype(inputs, torch.float64))
    return tuple(value.to(TORCH_DTYPES[case.dtype]) for value in reference)


def calibrate(
    exercise: Exercise,
    case: Case,
    inputs: Inputs,
    wide: Inputs,
    reference: tuple[torch.Tensor, ...],
    by_torch: Tensors,
) -> Expected:
    """Derive the error allowed for a call from the error of PyTorch's own result.

    `wide` and `reference` are in fp64, `inputs` and `by_torch` in the case's dtype. Raises ValueError if the
    shapes of `reference` and `by_torch` differ.
    """
    rounded = tuple(value.to(TORCH_DTYPES[case.dtype]) for value in reference)
    shapes = [[tuple(value.shape) for value in values] for values in (reference, by_torch)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"the reference has shapes {shapes[0]}, PyTorch's own result {shapes[1]}")
    if case.bitwise:
        zeros = (0.0,) * len(reference)
        return Expected(reference, rounded, rounded, zeros, inputs, zeros)
    epsilon = torch.finfo(TORCH_DTYPES[case.dtype]).eps
    factors, allowed, allowed_norm = [], [], []
    units = exercise.tolerance.unit(case, wide, reference)
    shared_by = exercise.tolerance.shared or _nothing
    for value, own, unit, shared in zip(
        reference, by_torch, units, shared_by(case, wide, reference), strict=True
    ):
        error = (own.double() - value).abs()
        most = (error / unit).max() if value.numel() else error.sum()
        each = unit.expand_as(value)
        norms = value.norm(), error.norm(), each.norm(), each.norm(4), shared.expand_as(value).norm()
        worst, norm, error_norm, unit_norm, fourth, shared_norm = _numbers((most, *norms))
        factors.append(2.0 * worst + exercise.tolerance.floor)
        allowed.append(factors[-1] * unit)
        own_norm = error_norm / norm if norm else 0.0
        # With few elements, or a few that are much larger than the others, the norm varies as much as a
        # single error, and if terms cancel, one unit is a large share of it.
        chance = exercise.tolerance.floor * unit_norm / norm if norm else 0.0
        count = (unit_norm / fourth) ** 4 if fourth else 1.0  # of elements that matter
        floor = exercise.tolerance.floor_norm * epsilon + NORM_FP32 + chance / max(count, 1.0) ** 0.5
        together = shared_norm / norm if norm else 0.0
        allowed_norm.append(2.0 * own_norm + floor + together)
    return Expected(reference, rounded, tuple(allowed), tuple(allowed_norm), inputs, tuple(factors))


def _nothing(_case: Case, _inputs: Inputs, reference: Tensors) -> tuple[torch.Tensor, ...]:
    return tuple(value.new_zeros(()) for value in reference)


def followed(
    exercise: Exercise, case: Case, expected: Expected, outputs: Tensors, earlier: Tensors | None
) -> tuple[Expected, AnySymptom | None]:
    """Return what is expected for the random choice in the outputs, and the symptom if it is wrong."""
    if exercise.follow is None:
        return expected, None
    symptom = None
    if exercise.bad_choice:
        symptom = exercise.bad_choice(case, [value.double() for value in outputs], earlier)
    chosen = _for_the_choice(exercise, case, expected, outputs)
    return chosen, None if symptom is None else checked_symptom(symptom, exercise.name)


def _for_the_choice(exercise: Exercise, case: Case, expected: Expected, outputs: Tensors) -> Expected:
    """Return what is expected for the random choice in the outputs, if the exercise makes one."""
    if exercise.follow is None:
        return expected
    wide = in_dtype(expected.inputs, torch.float64)
    reference = exercise.follow(case, wide, [value.double() for value in outputs])
    by_torch = [value.to(one.dtype) for value, one in zip(reference, outputs, strict=True)]
    return calibrate(exercise, case, expected.inputs, wide, tuple(reference), by_torch)


def invalid(case: Case, expected: Sequence[Expected]) -> str:
    """Say what is wrong with a case's own reference or tolerance; empty if both are finite.

    Where all bits are compared a result may be infinite.
    """
    faults, sound = list[str](), list[torch.Tensor]()
    for one in expected:
        if case.bitwise:
            faults += ["the reference of this case contains NaN"] * len(one.rounded)
            sound += [~value.isnan().any() for value in one.rounded]
            continue
        for name, values in (("the reference", one.reference), ("the tolerance", one.allowed)):
            faults += [f"{name} of this case contains NaN or inf"] * len(values)
            sound += [value.isfinite().all() for value in values]
    for fault, is_sound in zip(faults, _numbers(sound), strict=True):
        if not is_sound:
            return fault
    if not all(math.isfinite(norm) for one in expected for norm in one.allowed_norm):
        return "the tolerance of this case is not finite"
    return ""


def _numbers(asked: Iterable[torch.Tensor]) -> list[float]:
    """Return the values of several tensors of one element; the GPU is waited for once."""
    wide = [one.double() for one in asked]
    return [float(one) for one in torch.stack(wide).tolist()] if wide else []


def examine(
    exercise: Exercise,
    case: Case,
    expected: Expected,
    outputs: Tensors,
    untouched: Tensors | None = None,
    earlier: Tensors | None = None,
) -> tuple[Finding | None, float]:
    """Return the first finding about the outputs, or None, and the largest share of the tolerance used.

    `untouched`, if known, are masks of the elements that still hold their poison; `earlier`, if any, are the
    outputs of a call with other inputs.
    """
    expected, symptom = followed(exercise, case, expected, outputs, earlier)
    return compare(exercise, case, expected, outputs, untouched, symptom)


def compare(
    exercise: Exercise,
    case: Case,
    expected: Expected,
    outputs: Tensors,
    untouched: Tensors | None = None,
    symptom: AnySymptom | None = None,
) -> tuple[Finding | None, float]:
    """Return what `examine` does, from what `followed` has returned for these outputs."""
    used = 0.0
    for k, (name, got) in enumerate(zip(exercise.outputs, outputs, strict=True)):
        finding, share = _examine_one(name, case, expected, k, got, untouched[k] if untouched else None)
        used = max(used, share)
        if finding:
            return finding, used
    if symptom:  # each element is possible, but the random choice lacks a required property
        got, every = outputs[0], torch.ones_like(outputs[0], dtype=torch.bool)
        finding = _finding(exercise.outputs[0], Reason.MISMATCH, every, got, expected.reference[0], used)
        return replace(finding, symptom=symptom), used
    return None, used


def within(case: Case, expected: Expected, outputs: Tensors) -> bool:
    """Return whether `compare` would find nothing; the GPU is waited for once, and nothing else is said.

    For tolerances above 0, as those of every exercise are: `compare` divides by them.
    """
    return bool(_within(case, expected, outputs))


def is_right(exercise: Exercise, case: Case, expected: Expected, outputs: Tensors) -> bool:
    """Return whether `examine` would find nothing, as `within` does."""
    return bool(_is_right(exercise, case, expected, outputs))


def _is_right(exercise: Exercise, case: Case, expected: Expected, outputs: Tensors) -> torch.Tensor:
    right = _within(case, _for_the_choice(exercise, case, expected, outputs), outputs)
    if exercise.bad_choice is None or not right:  # a choice is looked at last: that takes longest
        return right
    symptom = exercise.bad_choice(case, [value.double() for value in outputs], None)
    return right if symptom is None else torch.zeros_like(right)


def _within(case: Case, expected: Expected, outputs: Tensors, norms: bool = True) -> torch.Tensor:
    """Return what `within` does, as a bool in the outputs' memory; without `norms` only of each element."""
    found = [torch.ones((), dtype=torch.bool, device=outputs[0].device)]
    for got, reference, rounded, allowed, allowed_norm in zip(
        outputs, expected.reference, expected.rounded, expected.allowed, expected.allowed_norm, strict=True
    ):
        if case.bitwise:
            found.append(same_bits(got, rounded))
            continue
        error = got.to(reference.dtype) - reference
        if norms:
            norm = reference.norm()
            found.append((error.norm() <= allowed_norm * norm) | (norm == 0.0))
        found.append((error.abs_() <= allowed).all())  # NaN compares false
    return torch.stack(found).all()


def agrees(exercise: Exercise, case: Case, expected: Expected, outputs: Tensors, name: str) -> bool:
    """Return whether one output of a call, by name, is what is expected."""
    expected, _ = followed(exercise, case, expected, outputs, None)
    k = exercise.outputs.index(name)
    return _examine_one(name, case, expected, k, outputs[k], None)[0] is None


def _examine_one(
    name: str, case: Case, expected: Expected, k: int, got: torch.Tensor, untouched: torch.Tensor | None
) -> tuple[Finding | None, float]:
    reference, rounded = expected.reference[k], expected.rounded[k]
    if got.numel() == 0:
        return None, 0.0
    if case.bitwise:
        bad = _bits(got) != _bits(rounded)
        used = float("inf") if bad.any() else 0.0
        if not used:
            return None, used
    else:
        error = got.to(reference.dtype) - reference
        norms = reference.norm(), error.norm()
        share = error.abs_() / expected.allowed[k]
        bad = ~(share <= 1.0)  # NaN compares false, so it is bad
        worst = share.nan_to_num(nan=float("inf")).max()
        is_bad, used, norm, error_norm = _numbers((bad.any(), worst, *norms))
        if not is_bad:
            norm_used = error_norm / norm / expected.allowed_norm[k] if norm else 0.0
            norm_used = float("inf") if norm_used != norm_used else norm_used
            wrong = norm_used > 1.0
            used = max(used, norm_used)
            return _wrong_together(name, got, reference, norm_used) if wrong else None, used
    if untouched is not None and (untouched & bad).any():
        return _finding(name, Reason.UNWRITTEN, untouched & bad, got, reference, used), used
    infinite = bad & ~got.isfinite()
    if infinite.any():
        return _finding(name, Reason.NONFINITE, infinite, got, reference, used), used
    return _finding(
        name, Reason.PRECISION if _nearly(got, reference) else Reason.MISMATCH, bad, got, reference, used
    ), used


def _wrong_together(name: str, got: torch.Tensor, reference: torch.Tensor, used: float) -> Finding:
    """Return the finding for an error of all elements together, which is too large although none alone is."""
    error = got.to(reference.dtype) - reference
    bad = ~(error.abs() < 0.5 * error.abs().max())
    reason = Reason.PRECISION if _nearly(got, reference) else Reason.MISMATCH
    return _finding(name, reason, bad, got, reference, used)


def _nearly(got: torch.Tensor, reference: torch.Tensor) -> bool:
    """Return whether the error is one of precision, as of a coarser arithmetic, and not of the formula."""
    error = got.double() - reference
    return bool(error.norm() < 3e-2 * reference.norm() and error.abs().max() < 5e-2 * reference.abs().max())


def _finding(
    name: str, reason: Reason, bad: torch.Tensor, got: torch.Tensor, reference: torch.Tensor, used: float
) -> Finding:
    index = tuple(int(i) for i in bad.nonzero()[0])
    return Finding(name, reason, index, got[index].item(), reference[index].item(), bad, used)


def difference(exercise: Exercise, first: Tensors, second: Tensors) -> Finding:
    """Return where the outputs of two runs on the same inputs differ; ValueError if they do not."""
    for name, before, after in zip(exercise.outputs, first, second, strict=True):
        bad = _bits(before) != _bits(after)
        if bad.any():
            return _finding(name, Reason.NONDETERMINISTIC, bad, after, before, math.inf)
    raise ValueError("the two runs agree")


def _bits(value: torch.Tensor) -> torch.Tensor:
    return value.contiguous().view(BITS[value.dtype])


def accepted_nulls(
    exercise: Exercise, case: Case, expected: Expected, inputs: Inputs, earlier: Tensors
) -> list[str]:
    """List the trivial answers that this case would accept; if there are any, the case is invalid.

    `earlier` are right outputs for other inputs, and stand for an answer kept from an earlier call.
    """
    if min(value.numel() for value in expected.reference) < FEWEST_FOR_NULLS:
        return []
    asked = {
        name: outputs for name, outputs in _nulls(expected, inputs, earlier) if name not in case.also_right
    }
    if exercise.follow is None:  # nearly always one element decides, and this is seen of all answers at once
        near = _numbers([_within(case, expected, outputs, norms=False) for outputs in asked.values()])
        asked = {name: asked[name] for name, is_near in zip(asked, near, strict=True) if is_near}
    return [name for name, outputs in asked.items() if is_right(exercise, case, expected, outputs)]


def _nulls(expected: Expected, inputs: Inputs, earlier: Tensors) -> Iterator[tuple[str, list[torch.Tensor]]]:
    yield "zeros", [torch.zeros_like(value) for value in expected.rounded]
    yield "uniform", [torch.full_like(value, 1.0 / value.shape[-1]) for value in expected.rounded]
    yield "an earlier result", list(earlier)
    yield "fewer digits", [_coarse(value) for value in expected.rounded]
    for name, value in tensors(inputs).items():
        if all(value.shape == out.shape for out in expected.rounded):
            yield f"a copy of {name}", [value] * len(expected.rounded)


def _coarse(value: torch.Tensor) -> torch.Tensor:
    """Reduce the precision of a value: to bf16 for fp32, by 3 bits for 16-bit types."""
    if value.dtype == torch.float32:
        return value.to(torch.bfloat16).float()
    bits = value.contiguous().view(torch.int16) & ~0x7
    return bits.view(value.dtype)
