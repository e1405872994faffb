"""Hold what a timed block wrote against PyTorch and, from time to time, against fp64."""

from __future__ import annotations

import torch

from grader import compare, diagnose
from grader.error_map import map_of
from grader.inputs import bands_whole, in_dtype, same_bits
from grader.outcome import Outcome
from grader.ring import Ring
from grader.spec import Lab, Verdict

FP64_EVERY = 8  # blocks of which one is held against fp64, on average


class Verifier:
    """Checks the outputs of one ring; the first check calibrates what PyTorch's results may differ by."""

    def __init__(self, lab: Lab, ring: Ring):
        self.lab, self.ring = lab, ring
        self.tolerance = None  # for comparisons with PyTorch, once fp64 has calibrated it

    def check(self, k: int, values) -> Outcome | None:
        """Every output of the set against PyTorch on the judge's copies.

        All are held to the tolerance of the norm; a secret one is held element by element as well, and from
        time to time against fp64, which costs as much as all the rest.
        """
        secret = self.ring.rng.whole(self.ring.calls)
        for slot, ((inputs, outputs), drawn) in enumerate(zip(self.ring.sets[k], values, strict=True)):
            for loan in inputs:
                if not same_bits(self.ring.arena.view(loan.tensor), drawn[loan.name]):
                    where = f"{loan.name} differs from what was passed in"
                    return self._said("", "mutated", where, Verdict.MUTATED_INPUT)
            for loan in outputs:
                if not bands_whole(self.ring.arena, loan, self.ring.sentinel):
                    where = f"memory around {loan.name} was written"
                    return self._said("WRITE", "out of bounds write", where, Verdict.OUT_OF_BOUNDS)
            got = [self.ring.arena.view(loan.tensor) for loan in outputs]
            in_fp64 = self.tolerance is None or (slot == secret and self.ring.rng.whole(FP64_EVERY) == 0)
            wanted = None if in_fp64 else self._wanted(drawn, got)
            if wanted and slot != secret and self._agree(got, wanted):
                continue
            expected = self._expect_by_torch(drawn, wanted) if wanted else self._expect_in_fp64(drawn)
            finding, _ = compare.examine(self.ring.exercise, self.ring.case, expected, got)
            if finding:
                return self._found(finding, drawn, expected.reference, got)
        return None

    def _wanted(self, drawn, got) -> tuple[torch.Tensor, ...] | None:
        """PyTorch's results, or what the outputs' own random choice asks for; None where that is bad."""
        exercise = self.ring.exercise
        if exercise.follow is None:
            return tuple(exercise.torch_op(**drawn))
        wanted, sign = exercise.follow(self.ring.case, drawn, got, None)
        return None if sign else tuple(wanted)

    def _agree(self, got, wanted) -> bool:
        """Whether outputs and PyTorch's agree, bit for bit or within the tolerance of the norm."""
        if self.ring.case.bitwise:
            return all(map(same_bits, got, wanted))
        for value, own, most in zip(got, wanted, self.tolerance[1], strict=True):
            # In the dtype itself: a difference of neighbours is exact, any other is far too large anyway.
            error, size = (torch.linalg.vector_norm(v, dtype=torch.float32) for v in (value - own, own))
            if not bool(error <= most * size):  # NaN compares false
                return False
        return True

    def _expect_in_fp64(self, drawn) -> compare.Expected:
        expected = compare.expect(self.ring.exercise, self.ring.case, drawn)
        wide = in_dtype(drawn, torch.float64)
        units = self.ring.exercise.tolerance.unit(self.ring.case, wide, expected.reference)
        # Two results within the tolerance of the truth differ by at most twice that from each other.
        factors = [2.0 * (a / u).max().item() for a, u in zip(expected.allowed, units, strict=True)]
        self.tolerance = factors, tuple(2.0 * norm for norm in expected.allowed_norm)
        return expected

    def _expect_by_torch(self, drawn, wanted) -> compare.Expected:
        if self.ring.case.bitwise:
            return compare.Expected(wanted, wanted, wanted, (0.0,) * len(wanted), drawn)
        factors, norms = self.tolerance
        close = tuple(value.float() for value in wanted)
        single = in_dtype(drawn, torch.float32)
        units = self.ring.exercise.tolerance.unit(self.ring.case, single, close)
        allowed = tuple(unit.mul_(factor) for factor, unit in zip(factors, units, strict=True))
        return compare.Expected(close, wanted, allowed, norms, drawn)

    def _said(self, reason: str, sign: str, where: str, verdict: Verdict) -> Outcome:
        found = diagnose.cause_of(self.lab, sign)
        return Outcome(verdict, reason, where=where, cause=found.cause, hint=found.hint)

    def _found(self, finding, drawn, reference, got) -> Outcome:
        k = self.ring.exercise.outputs.index(finding.output)
        found = diagnose.diagnose(
            self.lab, self.ring.exercise, self.ring.case, finding, drawn, reference[k], got[k], []
        )
        place = ", ".join(map(str, finding.index))
        values = f"yours {finding.got:.6g}   expected {finding.expected:.6g}"
        where = f"while timed, {finding.output}[{place}]   {values}"
        return Outcome(
            Verdict.WRONG,
            finding.reason,
            where=where,
            pattern=found.pattern,
            cause=found.cause,
            hint=found.hint,
            error_map=map_of(finding),
        )
