"""Time one shape: student and reference take turns on the judge's buffers, under the judge's clock."""

from __future__ import annotations

import gc
import os
import time
from dataclasses import dataclass, field, replace

import torch

from grader import compare, diagnose, timing
from grader.gpu import ClockReader, Gpu
from grader.inputs import (
    Loan,
    Placer,
    Rng,
    band_input,
    band_output,
    bands_whole,
    draw,
    draw_poison,
    draw_sentinel,
    poison_interior,
    same_bits,
)
from grader.judge import Seat, lay_out
from grader.lending import PAGE, TORCH_DTYPES, Arena
from grader.outcome import Outcome
from grader.shapes import fit, shapes_of, slot_bytes
from grader.spec import Arm, Case, Exercise, Lab, Verdict

LINE = 128  # bytes of a cache line
PAGE_LINES = PAGE // LINE
LINES_PER_OUTPUT = 4096
SAMPLED_PAGES = 64  # of all outputs of a block together
FEWEST_CALLS, MOST_CALLS = 4, 64
BLOCK_US = {"memory": 12_000.0, "arithmetic": 15_000.0}
LEAST_CALL_US = 150.0  # shorter calls would measure launches; 4096³ on today's fastest card takes about 170
WARM_CALLS, WARM_US = 10, 300_000.0
FP64_EVERY = 8  # blocks of which one is held against fp64, on average
TUNE_LIMIT_S = 120.0
BLOCK_LIMIT_S = 60.0
EMPTY_BLOCKS = 15
MOST_DISTURBED = 0.2  # share of rounds that may be dropped for throttling
WARM_DATA = 1_000_000  # call numbers from here on are data that no round uses


@dataclass
class Ring:
    """Two buffer sets in one arena, and the shape being timed on them."""

    arena: Arena
    set_bytes: int
    exercise: Exercise
    case: Case
    calls: int
    sets: list = field(default_factory=list)  # for each set, K pairs (inputs, outputs) of loans

    def __post_init__(self):
        shapes = shapes_of(self.exercise, self.case)
        for k in range(2):
            placer = Placer(k * self.set_bytes)
            self.sets.append([lay_out(self.exercise, self.case, placer, shapes) for _ in range(self.calls)])

    def extent(self, k: int) -> tuple[int, int]:
        """First byte of a set, and one past its last."""
        loans = [loan for inputs, outputs in self.sets[k] for loan in (*inputs, *outputs)]
        return loans[0].start, loans[-1].stop


class UnfitError(Exception):
    """The duel ends here with this outcome."""

    def __init__(self, outcome: Outcome):
        super().__init__(outcome.where)
        self.outcome = outcome


class Duel:
    """One shape of one exercise; `run` gives the outcome and leaves both seats usable for the next shape."""

    def __init__(
        self,
        lab: Lab,
        exercise: Exercise,
        case: Case,
        student: Seat,
        reference: Seat,
        gpu: Gpu | None,
        function: str = "",
    ):
        self.lab, self.exercise, self.case = lab, exercise, case
        self.student, self.reference, self.gpu = student, reference, gpu
        self.student_function = function
        self.trusted = bool(function)  # a baseline in the student's seat computes something else, and is ours
        self.arena = student.arena
        self.session = student.session
        self.clocks = ClockReader()
        self.rng = Rng(self.session.seed, f"duel/{exercise.name}/{case.name}", "cuda")
        self.draws = 0
        self.mismatches = 0
        self.overhead_us = 0.0
        self.claims: list[float] = []

    def run(self) -> Outcome:
        """Warm both sides, take paired rounds until the interval is narrow, verify every timed output."""
        try:
            return self._run()
        except UnfitError as unfit:
            return unfit.outcome

    def _run(self) -> Outcome:
        case = fit(self.exercise, self.case, self.arena.size // 2, FEWEST_CALLS)
        if case is None:
            return Outcome(Verdict.NOT_GRADED, where="this GPU has too little memory for the timed size")
        self.case = case
        for seat in (self.reference, self.student):
            self._must(seat.start())
        self._ring(FEWEST_CALLS)
        arm, call_us = self._fastest_arm()
        if call_us < LEAST_CALL_US:
            return Outcome(
                Verdict.NOT_GRADED, where=f"{arm.name} takes {call_us:.0f} us here, too short to time"
            )
        wanted = BLOCK_US["arithmetic" if self.exercise.speed.flops else "memory"] / call_us
        most = min(MOST_CALLS, self.arena.size // 2 // slot_bytes(self.exercise, case))
        self._ring(max(FEWEST_CALLS, min(most, round(wanted))))
        values = self._fill()
        plans = {(side, k): self._plan(side, k, arm) for side in ("reference", "student") for k in range(2)}
        self._warm("student", plans["student", 0], TUNE_LIMIT_S)
        self._verify(0, values)
        overhead_us = self.overhead_us = self._overhead()
        rounds, ratios, disturbed = [], [], 0
        while not timing.finished(ratios):
            this, reasons = self._round(len(rounds) + disturbed, plans)
            if reasons:
                disturbed += 1
                if disturbed > timing.MOST_ROUNDS * MOST_DISTURBED:
                    why = f"the GPU slowed down by itself ({', '.join(reasons)})"
                    return Outcome(Verdict.INCONCLUSIVE, where=why)
                continue
            rounds.append(this)
            ratios.append(this.ratio(overhead_us))
        peers = {peer.name: self._time_arm(peer) for peer in self.exercise.speed.peers}
        return self._outcome(arm, overhead_us, rounds, ratios, disturbed, peers)

    def _round(self, number: int, plans) -> tuple[timing.Round, list[str]]:
        mine, theirs = number % 2, 1 - number % 2  # sets are traded between rounds
        times = {"reference": [], "student": []}
        reasons = []
        for half in (("reference", "student"), ("student", "reference")):
            values = self._fill()
            for side in half:
                if side == half[1]:
                    # The reference's results must not lie about when the student runs; in the other half this
                    # only
                    # makes both second blocks follow the same work.
                    self._poison(theirs)
                k = mine if side == "student" else theirs
                times[side].append(self._block(side, plans[side, k], BLOCK_LIMIT_S, k))
                reasons += self.clocks.sample()
            self._verify(mine, values)
        return timing.Round(tuple(times["reference"]), tuple(times["student"])), reasons

    def _block(self, side: str, plan: int, limit_s: float, k: int | None = None) -> float:
        """Microseconds from "go" to the moment the judge holds a secret sample of every output of set `k`.

        Without `k` the block is a warm-up: its time is only looked at, not scored.
        """
        seat = self.student if side == "student" else self.reference
        memory = self.arena.bytes(0, self.arena.size).view(-1, LINE)
        lines = self._sample_lines(k or 0)
        torch.cuda.synchronize()
        self._must(seat.wake(BLOCK_LIMIT_S))
        gc.disable()  # a collection inside the clock would cost a side milliseconds, by chance
        start = time.perf_counter_ns()
        failed = seat.go(plan, limit_s, spin=True)
        sample = memory[lines]
        torch.cuda.synchronize()
        elapsed = (time.perf_counter_ns() - start) / 1e3
        gc.enable()
        self._must(failed)
        if side == "student" and k is not None:
            self.claims.append((seat.claimed_us or 0.0) / self.ring.calls)
            self.mismatches += timing.mismatch(elapsed - self.overhead_us, seat.claimed_us, self.ring.calls)
            if not torch.equal(sample, memory[lines]):
                self._wrong("UNWRITTEN", "nothing written", "outputs changed after the function had returned")
        return elapsed

    def _sample_lines(self, k: int) -> torch.Tensor:
        """Secret lines of every output, its end always among them, bunched on few pages.

        The judge's address translations are cold after the other process has run: lines spread over thousands
        of pages would cost milliseconds of page walks, inside the clock.
        """
        outputs = [loan for _, outputs in self.ring.sets[k] for loan in outputs]
        pages = max(1, SAMPLED_PAGES // len(outputs))
        picked = []
        for loan in outputs:
            first = loan.tensor.offset // LINE
            count = max(1, loan.tensor.span * TORCH_DTYPES[loan.tensor.dtype].itemsize // LINE)
            starts = (self.rng.uniform(pages, 1) * max(count - PAGE_LINES, 1)).long()
            starts[-1] = max(count - PAGE_LINES, 0)
            within = (self.rng.uniform(pages, LINES_PER_OUTPUT // pages) * min(PAGE_LINES, count)).long()
            picked.append(first + (starts + within).flatten())
        return torch.cat(picked)

    def _fill(self) -> list[dict[str, torch.Tensor]]:
        """Fresh inputs, the same in both sets, and poison in all outputs; returns the judge's own copies."""
        values = []
        for k in range(self.ring.calls):
            self.draws += 1
            drawn = draw(self.exercise, self.case, self.session.seed, "cuda", WARM_DATA + self.draws)
            for one_set in self.ring.sets:
                for loan in one_set[k][0]:
                    self.arena.view(loan.tensor).copy_(drawn[loan.name])
            values.append(drawn)
        for k in range(2):
            self._poison(k)
        return values

    def _poison(self, k: int) -> None:
        for _, outputs in self.ring.sets[k]:
            for loan in outputs:
                poison_interior(self.arena, loan, draw_poison(self.rng, self.case.dtype))

    def _verify(self, k: int, values) -> None:
        """Every output of the set against PyTorch on the judge's copies.

        All are held to the tolerance of the norm; a secret one is held element by element as well, and from
        time to time against fp64, which costs as much as all the rest.
        """
        if self.trusted:
            return
        secret = self.rng.whole(self.ring.calls)
        for slot, ((inputs, outputs), drawn) in enumerate(zip(self.ring.sets[k], values, strict=True)):
            for loan in inputs:
                if not same_bits(self.arena.view(loan.tensor), drawn[loan.name]):
                    where = f"{loan.name} differs from what was passed in"
                    self._wrong("", "mutated", where, Verdict.MUTATED_INPUT)
            for loan in outputs:
                if not bands_whole(self.arena, loan, self.sentinel):
                    where = f"memory around {loan.name} was written"
                    self._wrong("WRITE", "out of bounds write", where, Verdict.OUT_OF_BOUNDS)
            got = [self.arena.view(loan.tensor) for loan in outputs]
            in_fp64 = self.tolerance is None or (slot == secret and self.rng.whole(FP64_EVERY) == 0)
            wanted = None if in_fp64 else tuple(self.exercise.torch_op(**drawn))
            if wanted and slot != secret and self._agree(got, wanted):
                continue
            expected = self._expect_by_torch(drawn, wanted) if wanted else self._expect_in_fp64(drawn)
            finding, _ = compare.examine(self.exercise, self.case, expected, got)
            if finding:
                self._found(finding, drawn, expected.reference, got)

    def _agree(self, got, wanted) -> bool:
        """Whether outputs and PyTorch's agree, bit for bit or within the tolerance of the norm, in few
        passes.
        """
        if self.case.bitwise:
            return all(map(same_bits, got, wanted))
        for value, own, most in zip(got, wanted, self.tolerance[1], strict=True):
            # In the dtype itself: a difference of neighbours is exact, any other is far too large all the
            # same.
            error, size = (torch.linalg.vector_norm(v, dtype=torch.float32) for v in (value - own, own))
            if not bool(error <= most * size):  # NaN compares false
                return False
        return True

    def _expect_in_fp64(self, drawn) -> compare.Expected:
        expected = compare.expect(self.exercise, self.case, drawn)
        wide = {name: value.double() for name, value in drawn.items()}
        units = self.exercise.tolerance.unit(self.case, wide, expected.reference)
        # Two results within the tolerance of the truth differ by at most twice that from each other.
        factors = [2.0 * (a / u).max().item() for a, u in zip(expected.allowed, units, strict=True)]
        self.tolerance = factors, tuple(2.0 * norm for norm in expected.allowed_norm)
        return expected

    def _expect_by_torch(self, drawn, wanted) -> compare.Expected:
        if self.case.bitwise:
            return compare.Expected(wanted, wanted, wanted, (0.0,) * len(wanted))
        factors, norms = self.tolerance
        close = tuple(value.float() for value in wanted)
        single = {name: value.float() for name, value in drawn.items()}
        units = self.exercise.tolerance.unit(self.case, single, close)
        allowed = tuple(unit.mul_(factor) for factor, unit in zip(factors, units, strict=True))
        return compare.Expected(close, wanted, allowed, norms)

    def _ring(self, calls: int) -> None:
        self.ring = Ring(self.arena, self.arena.size // 2, self.exercise, self.case, calls)
        self.tolerance = None  # for comparisons with PyTorch, once fp64 has calibrated it
        self.sentinel = draw_sentinel(self.rng, self.case.dtype)
        for one_set in self.ring.sets:
            for inputs, outputs in one_set:
                for loan in inputs:
                    band_input(self.arena, loan)
                for loan in outputs:
                    band_output(self.arena, loan, self.sentinel)

    def _plan(self, side: str, k: int, arm: Arm | None = None) -> int:
        calls = self.ring.sets[k]
        if side == "student":
            plan = self.student.prepare(self.exercise, calls, BLOCK_LIMIT_S, self.student_function)
        else:
            plan = self.reference.prepare(
                self.exercise, [_relaid(call, arm) for call in calls], BLOCK_LIMIT_S, arm.function.__name__
            )
        if isinstance(plan, Outcome):
            self._must(plan)
        return plan

    def _warm(self, side: str, plan: int, limit_s: float) -> float:
        """Run until 10 calls and 300 ms are done; returns microseconds a call of the last block."""
        spent, calls, last = 0.0, 0, 0.0
        while calls < WARM_CALLS or spent < WARM_US:
            last = self._block(side, plan, limit_s)
            spent += last
            calls += self.ring.calls
            limit_s = BLOCK_LIMIT_S
        return last / self.ring.calls

    def _fastest_arm(self) -> tuple[Arm, float]:
        self._fill()
        times = [
            (self._warm("reference", self._plan("reference", 0, arm), BLOCK_LIMIT_S), arm)
            for arm in self.exercise.speed.baselines
        ]
        best, arm = min(times, key=lambda pair: pair[0])
        return arm, best

    def _time_arm(self, arm: Arm) -> float:
        plan = self._plan("reference", 0, arm)
        self._block("reference", plan, BLOCK_LIMIT_S)
        return (
            timing.median([self._block("reference", plan, BLOCK_LIMIT_S) for _ in range(5)]) / self.ring.calls
        )

    def _overhead(self) -> float:
        """Microseconds of a block without calls, of the reference worker alone: a student's could be slow on
        purpose.
        """
        empty = self.reference.prepare(
            self.exercise, [], BLOCK_LIMIT_S, self.exercise.speed.baselines[0].function.__name__
        )
        return timing.median([self._block("reference", empty, BLOCK_LIMIT_S) for _ in range(EMPTY_BLOCKS)])

    def _must(self, failed: Outcome | None) -> None:
        if failed:
            raise UnfitError(failed)

    def _wrong(self, reason: str, sign: str, where: str, verdict: Verdict = Verdict.WRONG) -> None:
        found = diagnose.cause_of(self.lab, sign)
        raise UnfitError(Outcome(verdict, reason, where=where, cause=found.cause, hint=found.hint))

    def _found(self, finding, drawn, reference, got) -> None:
        k = self.exercise.outputs.index(finding.output)
        found = diagnose.diagnose(
            self.lab, self.exercise, self.case, finding, drawn, reference[k], got[k], []
        )
        place = ", ".join(map(str, finding.index))
        values = f"yours {finding.got:.6g}   expected {finding.expected:.6g}"
        where = f"while timed, {finding.output}[{place}]   {values}"
        raise UnfitError(
            Outcome(
                Verdict.WRONG,
                finding.reason,
                where=where,
                pattern=found.pattern,
                cause=found.cause,
                hint=found.hint,
            )
        )

    def _outcome(self, arm, overhead_us, rounds, ratios, disturbed, peers) -> Outcome:
        speed, result = self.exercise.speed, timing.estimate(ratios)
        calls = self.ring.calls
        student_us = timing.median([(sum(r.student_us) / 2 - overhead_us) / calls for r in rounds])
        reference_us = timing.median([(sum(r.reference_us) / 2 - overhead_us) / calls for r in rounds])
        bytes_moved = speed.bytes_moved(self.case)
        flops = speed.flops(self.case) if speed.flops else 0
        least = (
            timing.floor_us(bytes_moved, flops, self.gpu.bandwidth, self.gpu.peak_flops) if self.gpu else 0.0
        )
        percent = 100.0 * (result.median if result.conclusive else result.high)
        verdict = Verdict.PASS if percent >= speed.passing_at else Verdict.SLOW
        if student_us < least:
            verdict = Verdict.IMPOSSIBLE
        elif not result.conclusive:
            verdict = Verdict.INCONCLUSIVE
        samples = self.clocks.samples
        figures = {
            "shape": dict(self.case.params),
            "dtype": self.case.dtype,
            "baseline": arm.name,
            "calls_per_block": calls,
            "student_us": student_us,
            "reference_us": reference_us,
            "percent": percent,
            "interval": [100.0 * result.low, 100.0 * result.high],
            "overhead_us": overhead_us,
            "bytes_moved": bytes_moved,
            "flops": flops,
            "floor_us": least,
            "terabytes_per_s": bytes_moved / student_us / 1e6,
            "teraflops": flops / student_us / 1e6,
            "peers_us": {name: (us - overhead_us / calls) for name, us in peers.items()},
            "rounds": [[list(r.reference_us), list(r.student_us)] for r in rounds],
            "rounds_dropped": disturbed,
            "configs": self.student.picked,
            "claimed_us": timing.median(self.claims),
            "timing_mismatch": self.mismatches > len(rounds),
            "clocks": {
                "sm_mhz": _spread(samples.sm_mhz),
                "watts": _spread(samples.watts),
                "celsius": _spread(samples.celsius),
                "reasons": sorted(samples.reasons),
                "unread": self.clocks.missing,
            },
        }
        found = diagnose.cause_of(self.lab, "slow") if verdict is Verdict.SLOW else None
        traced = os.environ.get("TRITON_PRINT_AUTOTUNING") == "1"  # whoever asks for it wants to read it
        where = (
            f"{student_us:.1f} us is less than the {least:.1f} us that this GPU needs"
            if verdict is Verdict.IMPOSSIBLE
            else ""
        )
        return Outcome(
            verdict,
            where=where,
            cause=found.cause if found else "",
            hint=found.hint if found else None,
            printed=self.student.printed if traced else "",
            figures=figures,
        )


def _relaid(call, arm: Arm):
    """The same lent bytes, with the layouts an arm wants for them; for square and contiguous tensors."""
    inputs, outputs = call

    def laid(loan: Loan) -> Loan:
        layout = arm.layouts.get(loan.name)
        if layout is None:
            return loan
        return replace(loan, tensor=replace(loan.tensor, strides=layout.strides(loan.tensor.shape)))

    return [laid(loan) for loan in inputs], outputs


def _spread(values) -> list[float]:
    """Least, median and most; empty where nothing was sampled."""
    return [min(values), timing.median(values), max(values)] if values else []
