"""Check the outputs of a timed block against PyTorch and, at random, against fp64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch

from grader.course.signatures import Inputs, Tensors
from grader.course.spec import Lab, Reason, Verdict
from grader.course.symptoms import AnySymptom, Symptom
from grader.judge import comparison, diagnosis
from grader.judge.buffer_sets import BufferSets
from grader.judge.diagnosis import diagnosed
from grader.judge.inputs import bands_whole, in_dtype, same_bits, tensors
from grader.results.error_map import map_of
from grader.results.outcome import Outcome
from grader.worker.shared_memory import Buffer

FP64_EVERY = 8  # on average one secret call in this many is checked against fp64


class Tolerance(NamedTuple):
    """How far a result may differ from PyTorch's, for each output."""

    factors: tuple[float, ...]  # multiples of the exercise's unit, for each element
    norms: tuple[float, ...]  # relative Frobenius norm of the error
    errors: tuple[float, ...]  # the same, absolute: all calls' results are drawn alike, and of about one size


class Verifier:
    """Checks the outputs of buffer sets; the first check calibrates the tolerance to PyTorch's results."""

    def __init__(self, lab: Lab, buffer_sets: BufferSets):
        self.lab, self.buffer_sets = lab, buffer_sets
        self.tolerance: Tolerance | None = None  # for comparisons with PyTorch, once fp64 has calibrated it

    def check(self, k: int, values: Sequence[Inputs], closely: bool = True) -> Outcome | None:
        """Check every output of a set against PyTorch on the judge's copies of the inputs.

        All are compared by their norm: what saves time is wrong in more elements than a norm permits. If
        `closely`, one secret call is also compared element by element, and at random against fp64, which
        takes longer than everything else. Its random choice is looked at, if it makes one.
        """
        sets = self.buffer_sets
        secret = sets.rng.whole(sets.calls) if closely or self.tolerance is None else None
        quick = self._right_by_norms(k, values, secret, closely)
        for slot, ((inputs, outputs), drawn) in enumerate(zip(sets.sets[k], values, strict=True)):
            if quick and slot != secret:
                continue
            damaged = None if quick else self._damaged(inputs, outputs, drawn)
            if damaged:
                return damaged
            got = [sets.arena.view(buffer.tensor) for buffer in outputs]
            tolerance, wanted = self.tolerance, None
            if tolerance and not (slot == secret and sets.rng.whole(FP64_EVERY) == 0):
                wanted = self._wanted(drawn, got, slot == secret)
            symptom = None
            if tolerance is None or wanted is None:
                expected, symptom = self._expect_in_fp64(drawn, got)
            elif slot != secret and all(self._agreement(got, wanted, tolerance)):
                continue
            else:
                expected = self._expect_by_torch(drawn, wanted, tolerance)
            if symptom is None and comparison.within(sets.case, expected, got):
                continue
            finding, _ = comparison.compare(sets.exercise, sets.case, expected, got, symptom=symptom)
            if finding:
                return self._found(finding, drawn, expected.reference, got)
        return None

    def _damaged(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], drawn: Inputs) -> Outcome | None:
        """Return the outcome of a call that changed an input or a band; None if it did not."""
        arena, given = self.buffer_sets.arena, tensors(drawn)
        for buffer in inputs:
            if not same_bits(arena.view(buffer.tensor), given[buffer.name]):
                where = f"{buffer.name} is an input and was changed by the call"
                return diagnosed(self.lab, Verdict.MUTATED_INPUT, Reason.NONE, Symptom.MUTATED, where)
        for buffer in outputs:
            if not bands_whole(arena, buffer, self.buffer_sets.sentinel):
                where, written = f"memory around {buffer.name} was written", Symptom.OUT_OF_BOUNDS_WRITE
                return diagnosed(self.lab, Verdict.OUT_OF_BOUNDS, Reason.WRITE, written, where)
        return None

    def _wanted(self, drawn: Inputs, got: Tensors, choice: bool) -> tuple[torch.Tensor, ...] | None:
        """Return PyTorch's results, or those for the outputs' own random choice.

        None if that `choice` is looked at and is wrong.
        """
        exercise = self.buffer_sets.exercise
        if exercise.follow is None:
            return tuple(exercise.torch_op(**drawn))
        case = self.buffer_sets.case
        if choice and exercise.bad_choice and exercise.bad_choice(case, got, None):
            return None
        return tuple(exercise.follow(case, drawn, got))

    def _right_by_norms(self, k: int, values: Sequence[Inputs], secret: int | None, closely: bool) -> bool:
        """Return whether no input and no band has changed, and all outputs but a `secret` call's agree.

        If `closely`, inputs are compared with the judge's copies, else those of both sets with each other,
        which takes a few operations for all calls. The GPU is waited for once, not after each comparison.
        """
        sets = self.buffer_sets
        if self.tolerance is None:
            return False
        found = sets.bands_whole(k)
        if not closely:
            found += sets.inputs_alike()
        for slot, ((inputs, outputs), drawn) in enumerate(zip(sets.sets[k], values, strict=True)):
            given, got = tensors(drawn), [sets.arena.view(buffer.tensor) for buffer in outputs]
            if closely:
                found += [same_bits(sets.arena.view(buffer.tensor), given[buffer.name]) for buffer in inputs]
            if slot != secret:
                wanted = self._wanted(drawn, got, choice=False)
                assert wanted is not None  # a choice that is not looked at is not refused
                found += self._agreement(got, wanted, self.tolerance)
                del wanted  # before the next ones are computed
        return bool(torch.stack(found).all())

    def _agreement(self, got: Tensors, wanted: Tensors, tolerance: Tolerance) -> list[torch.Tensor]:
        """Return for each output if it agrees with PyTorch's: in all bits, or within the norm's tolerance."""
        if self.buffer_sets.case.bitwise:
            return list(map(same_bits, got, wanted))
        found = []
        for value, own, most in zip(got, wanted, tolerance.errors, strict=True):
            # In the dtype itself: a difference of close values is exact, any other is too large anyway.
            error = torch.linalg.vector_norm(value - own, dtype=torch.float32)
            found.append(error <= most)  # NaN compares false
        return found

    def _expect_in_fp64(self, drawn: Inputs, got: Tensors) -> tuple[comparison.Expected, AnySymptom | None]:
        """Return what is expected, for the outputs' own random choice, and the symptom if that is wrong."""
        exercise, case = self.buffer_sets.exercise, self.buffer_sets.case
        expected = comparison.expect(exercise, case, drawn)
        expected, symptom = comparison.followed(exercise, case, expected, got, None)
        # Two results within the tolerance of the exact value differ by at most twice the tolerance.
        factors = tuple(2.0 * factor for factor in expected.factors)
        norms = tuple(2.0 * norm for norm in expected.allowed_norm)
        sizes = [float(torch.linalg.vector_norm(own, dtype=torch.float32)) for own in expected.rounded]
        errors = tuple(norm * size for norm, size in zip(norms, sizes, strict=True))
        self.tolerance = Tolerance(factors, norms, errors)
        return expected, symptom

    def _expect_by_torch(
        self, drawn: Inputs, wanted: tuple[torch.Tensor, ...], tolerance: Tolerance
    ) -> comparison.Expected:
        if self.buffer_sets.case.bitwise:
            return comparison.Expected(wanted, wanted, wanted, (0.0,) * len(wanted), drawn)
        close = tuple(value.float() for value in wanted)
        single = in_dtype(drawn, torch.float32)
        with _fast_products():
            units = self.buffer_sets.exercise.tolerance.unit(self.buffer_sets.case, single, close)
        allowed = tuple(unit.mul_(factor) for factor, unit in zip(tolerance.factors, units, strict=True))
        return comparison.Expected(close, wanted, allowed, tolerance.norms, drawn)

    def _found(self, finding: comparison.Finding, drawn: Inputs, reference: Tensors, got: Tensors) -> Outcome:
        k = self.buffer_sets.exercise.outputs.index(finding.output)
        found = diagnosis.diagnose(
            self.lab,
            self.buffer_sets.exercise,
            self.buffer_sets.case,
            finding,
            drawn,
            reference[k],
            got[k],
            [],
        )
        first = finding.first_wrong(while_timed=True)
        return Outcome(
            Verdict.WRONG,
            finding.reason,
            where=first.words,
            first_wrong=first,
            pattern=found.pattern,
            cause=found.cause,
            hint=found.hint,
            error_map=map_of(finding),
        )


@contextmanager
def _fast_products() -> Iterator[None]:
    """Products of fp32 matrices in TF32: a tolerance needs three digits, and fp32 takes ten times as long."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
