"""Time one shape: student and reference take turns on the judge's buffers, under the judge's clock."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from grader.course.signatures import Inputs
from grader.course.spec import Arm, Case, Exercise, Lab, Reason, Verdict
from grader.course.symptoms import Symptom
from grader.judge import diagnosis, statistics
from grader.judge.buffer_sets import BufferSets
from grader.judge.correctness import adds_in_any_order
from grader.judge.foreign_work import audited, foreign_operators, other_kernels
from grader.judge.inputs import finish_writes
from grader.judge.shapes import fit, slot_bytes
from grader.judge.timed_outputs import Verifier
from grader.results import scoring
from grader.results.outcome import Outcome
from grader.results.timing import Clocks, Round, Spread, Timing
from grader.system.gpu import ClockReader, Gpu
from grader.worker.session import Session
from grader.worker.submission_worker import SubmissionWorker

FEWEST_CALLS, MOST_CALLS = 4, 64
# Of the calls of a block. Its time varies by about 4 us however long it is, and gradings of the same file
# should not differ by more than 0.3 %.
BLOCK_US = {"memory": 2_400.0, "arithmetic": 4_500.0}
LEAST_CALL_US = 75.0  # shorter calls would measure launches
WARM_CALLS, WARM_US = 10, 30_000.0
# Before a block of arithmetic. Without it the power limit lowers the clock, on some GPUs more than on others.
REST_S = 0.01
SLOW_BLOCK_US = 100_000.0  # a longer block of the student's gets fewer calls: rounds would take minutes
TUNE_LIMIT_S = 120.0
BLOCK_LIMIT_S = 60.0
EMPTY_BLOCKS, FEWEST_EMPTY_BLOCKS = 9, 5  # the fewest where only the number of calls depends on them
ATTEMPTS = 2  # to time a shape, while the timing decides nothing
ALONE_BLOCKS = 6  # of the reference before the student's file is loaded, and as many after its process
MOST_DISTURBED = 0.2  # share of rounds that may be dropped for throttling, or for other work on the GPU
# The judge's writing of the inputs may take this much longer than without the student's process, and no more:
# a kernel beside it would take every other slice of the GPU's time.
WRITING, WRITING_US = 1.5, 500.0


class UnfitError(Exception):
    """The speed test ends here with this outcome."""

    def __init__(self, outcome: Outcome):
        super().__init__(outcome.where)
        self.outcome = outcome


class SpeedTest:
    """One shape of one exercise; `run` gives the outcome.

    The student's process has ended then, and another shape has another one: what it left on the GPU would
    slow the blocks of the reference by which the next shape is judged. A process that is not yet set up does
    that while the reference warms up, and then waits, as those of other shapes may: no block is timed beside
    one that sets itself up, and no line of the student's file runs before the reference was timed alone.
    With `count_kernels` a last, untimed block is looked at for kernels that the file did not launch.
    """

    def __init__(
        self,
        lab: Lab,
        exercise: Exercise,
        case: Case,
        student: SubmissionWorker,
        reference: SubmissionWorker,
        gpu: Gpu | None,
        function: str = "",
        count_kernels: bool = False,
    ):
        if exercise.speed is None:
            raise ValueError(f"{exercise.name} has no timed shapes")
        self.lab, self.exercise, self.case, self.speed = lab, exercise, case, exercise.speed
        self.student, self.reference, self.gpu = student, reference, gpu
        self.student_function = function
        self.trusted = bool(
            function
        )  # a baseline in the student's worker computes something else, and is ours
        self.count_kernels = count_kernels and not self.trusted
        self.arena = student.arena
        self.session = student.session
        self.clocks = ClockReader()
        self._sets: BufferSets | None = None
        self.overhead_us = 0.0
        self.writing_us = math.inf  # of a call's inputs, without the student's process
        self.poisoned: tuple[torch.Tensor, torch.Tensor] | None = None  # before a scored block: lines, bytes
        self.sampled: tuple[torch.Tensor, torch.Tensor] | None = None  # of the last scored block

    @property
    def buffer_sets(self) -> BufferSets:
        """The buffers of the shape, which `run` lays out."""
        assert self._sets is not None
        return self._sets

    def run(self) -> Outcome:
        """Warm both sides, take paired rounds until the interval is narrow, verify every timed output.

        A shape that stays inconclusive is timed once more, on other data. If it is inconclusive again, its
        points are left for a person to decide.
        """
        for _ in range(ATTEMPTS):
            self.sampled = None
            outcome = self._attempt()
            if outcome.verdict is not Verdict.INCONCLUSIVE:
                return outcome
        return replace(outcome, undecided=True)

    def _attempt(self) -> Outcome:
        try:
            return self._run()
        except UnfitError as unfit:
            return unfit.outcome
        finally:
            self.student.close()

    def _run(self) -> Outcome:
        case = fit(self.exercise, self.case, self.arena.size // 2, FEWEST_CALLS)
        if case is None:
            words = "this GPU has too little memory for the timed size"
            return Outcome(Verdict.NOT_GRADED, where=words, needs_gpu=True)
        self.case = case
        self._must(self.student.begin())
        self._must(self.reference.start())
        self._ring(FEWEST_CALLS)
        arm, call_us = self._fastest_arm()
        if call_us < LEAST_CALL_US:
            where = f"{arm.name} takes {max(call_us, 0.0):.0f} us here, too short to time"
            return Outcome(Verdict.NOT_GRADED, where=where)
        wanted = BLOCK_US["arithmetic" if self.speed.flops else "memory"] / max(call_us, 1e-3)
        most = min(MOST_CALLS, self.arena.size // 2 // slot_bytes(self.exercise, case))
        self._ring(max(FEWEST_CALLS, min(most, round(wanted))))
        plans = self._plans("reference", arm)
        before = self._alone(plans)
        calls_alone = self.buffer_sets.calls
        self._must(self.student.start())
        plans |= self._plans("student", arm)
        values = self.buffer_sets.draw()
        self.buffer_sets.write(values, 0)
        call_us = self._warm("student", plans["student", 0], TUNE_LIMIT_S)
        self._verify(0, values)
        self._must(self._repeated(plans["student", 0]))
        if call_us * self.buffer_sets.calls > SLOW_BLOCK_US:
            self._ring(max(FEWEST_CALLS, int(SLOW_BLOCK_US / call_us)))
            plans = self._plans("reference", arm) | self._plans("student", arm)
        overhead_us = self.overhead_us = self._overhead()
        rounds: list[Round] = []
        ratios: list[float] = []
        disturbed, watched_in = 0, self.buffer_sets.rng.whole(statistics.FEWEST_ROUNDS)
        began = time.monotonic()
        half_width = statistics.HALF_WIDTH_OF_ARITHMETIC if self.speed.flops else statistics.HALF_WIDTH
        while not statistics.finished(ratios, time.monotonic() - began, half_width):
            if len(rounds) == watched_in:
                self._watch(plans["student", len(rounds) % 2], len(rounds) % 2)
                watched_in = statistics.MOST_ROUNDS
            this, reasons = self._round(len(rounds) + disturbed, plans, arm)
            if reasons:
                disturbed += 1
                if disturbed > statistics.MOST_ROUNDS * MOST_DISTURBED:
                    why = f"the GPU was disturbed ({', '.join(reasons)})"
                    return Outcome(Verdict.INCONCLUSIVE, where=why)
                continue
            rounds.append(this)
            ratios.append(this.ratio(overhead_us))
        configs = self.student.picked(BLOCK_LIMIT_S)
        if self.count_kernels:  # last: under CUPTI calls take longer
            plan = plans["student", 0]
            self._must(other_kernels(self.student, self.lab, self.exercise, plan, BLOCK_LIMIT_S, True))
        self.student.kill()  # its CUDA context takes a while to end: meanwhile the reference warms up
        self._make_warm("reference", plans["reference", 0], BLOCK_LIMIT_S)
        self.student.close()  # only now it is certain that nothing of it slows the reference
        self._open_block("reference", plans["reference", 0], BLOCK_LIMIT_S)  # the GPU may have waited
        usual_us = self._usual_us(before, calls_alone, self._alone(plans))
        result, where = statistics.judged(rounds, usual_us, overhead_us)
        if where:
            return Outcome(Verdict.INCONCLUSIVE, where=where)
        peers = {peer.name: self._time_arm(peer) for peer in self.speed.peers}
        return self._outcome(arm, rounds, result, usual_us, disturbed, peers, configs)

    def _alone(self, plans: Mapping[tuple[str, int], int]) -> list[float]:
        """Time blocks of the reference, in microseconds.

        They come in pairs, after the same work as the two blocks of a half of a round. All compute the same
        values: no host code of the student runs now, which could keep a result of them. A process for the
        student's file may exist, stopped, in which no line of it has run yet.
        """
        times, writing = [], []
        values = self.buffer_sets.draw()
        for number in range(ALONE_BLOCKS):
            k = number % 2
            self._queue("reference", plans["reference", k])
            if k == 0:
                writing.append(self._write(values, k))
            else:
                self.buffer_sets.poison(k)
            times.append(self._block("reference", plans["reference", k], BLOCK_LIMIT_S, rests=True))
        self.writing_us = statistics.median(writing)
        return times

    def _usual_us(self, before: Sequence[float], calls_before: int, after: Sequence[float]) -> float:
        """Return the time of the reference's block without the student's process.

        The blocks before may have had other numbers of calls; what an empty block takes is taken off.
        """
        scale = self.buffer_sets.calls / calls_before
        scaled = [(time - self.overhead_us) * scale + self.overhead_us for time in before]
        return statistics.usual_us(scaled, after, self.overhead_us)

    def _round(self, number: int, plans: Mapping[tuple[str, int], int], arm: Arm) -> tuple[Round, list[str]]:
        mine, theirs = number % 2, 1 - number % 2  # sets are traded between rounds
        times: dict[str, list[float]] = {"reference": [], "student": []}
        reasons: list[str] = []
        sets = {"student": mine, "reference": theirs}
        closely = self.buffer_sets.rng.whole(2)  # the half of which a call is looked at element by element
        for at, half in enumerate((("reference", "student"), ("student", "reference"))):
            values = self.buffer_sets.draw()
            if not self.trusted and self.buffer_sets.renew_numbers():
                plans = {**plans, ("student", mine): self._plan("student", mine, arm)}
            for side in half:  # both, before any input is written: host code of the student sees none
                self._queue(side, plans[side, sets[side]])
            if self._write(values, mine) > WRITING * self.writing_us + WRITING_US / self.buffer_sets.calls:
                reasons.append("other work ran on it while the inputs were written")
            for side in half:
                if side == half[1]:
                    # The reference's results must not lie about when the student runs; in the other half
                    # this only makes both second blocks follow the same work.
                    self.buffer_sets.poison(theirs)
                k = sets[side]
                times[side].append(self._block(side, plans[side, k], BLOCK_LIMIT_S, k, rests=True))
            reasons += self.clocks.sample()
            self._verify(mine, values, closely == at)
        reference_us, student_us = times["reference"], times["student"]
        this = Round(
            reference_us=(reference_us[0], reference_us[1]), student_us=(student_us[0], student_us[1])
        )
        return this, reasons

    def _worker(self, side: str) -> SubmissionWorker:
        return self.student if side == "student" else self.reference

    def _queue(self, side: str, plan: int) -> None:
        """Queue a plan behind the side's gate; what the student's call does is looked at."""
        worker = self._worker(side)
        self._must(worker.queue(plan, BLOCK_LIMIT_S))
        if side == "student" and not self.trusted:
            self._must(foreign_operators(worker, self.lab, self.exercise))

    def _write(self, values: Sequence[Inputs], k: int) -> float:
        """Write the inputs to both sets and poison the outputs of set `k`; return microseconds of the GPU for
        a call.

        These outputs are sampled: until the student's gate is opened they must not change.
        """
        taken_us = _gpu_us(lambda: self.buffer_sets.write(values, k), self.session)
        lines = self.buffer_sets.secret_lines(k)
        self.poisoned = lines, self.buffer_sets.lines[lines]
        return taken_us / self.buffer_sets.calls

    def _block(
        self, side: str, plan: int, limit_s: float, k: int | None = None, rests: bool = False
    ) -> float:
        """Microseconds from opening the gate to the moment the judge holds a secret sample of every output of
        set `k`.

        The plan is queued now if it is not yet. Without `k` the time is only looked at, not scored. With
        `rests` the GPU rests before a block of arithmetic.
        """
        assert not self.student.is_setting_up, "it would use the GPU beside a timed block"
        if self._worker(side).queued != plan:
            self._queue(side, plan)
        other = self.reference if side == "student" else self.student
        other.hold(still=True)  # what it might compute meanwhile would slow this side down
        if rests and self.speed.flops:  # before the check for early writes: a kernel could write during it
            time.sleep(REST_S)
        memory, lines = self.buffer_sets.lines, self.buffer_sets.secret_lines(k or 0)
        scored = side == "student" and k is not None
        if scored and self.poisoned and not torch.equal(self.poisoned[1], memory[self.poisoned[0]]):
            raise UnfitError(self._unwritten("outputs were written before the call was let through"))
        finish_writes(self.session.device)
        opened = self._worker(side).open(lambda: memory[lines], limit_s)
        if isinstance(opened, Outcome):
            raise UnfitError(opened)
        if scored:
            self.sampled = lines, opened.sample
        return opened.elapsed_us

    def _watch(self, plan: int, k: int) -> None:
        """Run the student's calls with kernels that do nothing: then nothing may be written, whatever the
        inputs still are.
        """
        if self.trusted or self.exercise.native:
            return
        self.buffer_sets.poison(k)
        finish_writes(self.session.device)
        seen = self.student.watch(plan, BLOCK_LIMIT_S)
        self._must(audited(self.lab, self.exercise, seen, self.buffer_sets.is_blank(k)))

    def _repeated(self, plan: int) -> Outcome | None:
        """Run a plan of set 0 twice on the same inputs; return an outcome if a sample of its outputs differs.

        A file may have another kernel for the timed size than for the cases, where two runs are compared.
        Outputs that come late have a verdict of their own, whether they came before this looks at them or
        will come after it.
        """
        any_order = self.exercise.splits_sums and adds_in_any_order(self.student.text)
        if self.trusted or any_order:
            return None
        memory, lines = self.buffer_sets.lines, self.buffer_sets.secret_lines(0)
        self.poisoned = None  # of blocks of the reference
        found, unwritten = [], False
        for _ in range(2):
            self.buffer_sets.poison(0)
            blank = memory[lines]
            self._block("student", plan, BLOCK_LIMIT_S, 0)
            self._not_late()
            found.append(memory[lines])
            unwritten |= bool((found[-1] == blank).all(dim=-1).any())
        if torch.equal(*found):
            return None
        if unwritten:
            raise UnfitError(self._unwritten("outputs were not written when the call had ended"))
        where, symptom = "two timed runs on the same inputs differ", Symptom.NONDETERMINISTIC
        return diagnosis.diagnosed(self.lab, Verdict.WRONG, Reason.NONDETERMINISTIC, symptom, where)

    def _ring(self, calls: int) -> None:
        first = self._sets.draws if self._sets else 0  # no data is used twice
        self._sets = BufferSets(self.arena, self.exercise, self.case, calls, self.session.seed, first)
        self.verifier = Verifier(self.lab, self.buffer_sets)

    def _verify(self, k: int, values: Sequence[Inputs], closely: bool = True) -> None:
        self._not_late()
        if not self.trusted:
            self._must(self.verifier.check(k, values, closely))

    def _not_late(self) -> None:
        """Compare the sample of the last scored block, which was taken within its time, with the outputs."""
        if self.sampled and not torch.equal(self.sampled[1], self.buffer_sets.lines[self.sampled[0]]):
            raise UnfitError(self._unwritten("outputs changed after the call had ended"))
        self.sampled = None

    def _unwritten(self, where: str) -> Outcome:
        symptom = Symptom.NOTHING_WRITTEN
        return diagnosis.diagnosed(self.lab, Verdict.WRONG, Reason.UNWRITTEN, symptom, where)

    def _plans(self, side: str, arm: Arm) -> dict[tuple[str, int], int]:
        return {(side, k): self._plan(side, k, arm) for k in range(2)}

    def _plan(self, side: str, k: int, arm: Arm) -> int:
        calls = self.buffer_sets.sets[k]
        if side == "student":
            plan = self.student.prepare(
                self.exercise, calls, BLOCK_LIMIT_S, self.student_function, self.buffer_sets.named
            )
        else:
            plan = self.reference.prepare(
                self.exercise, self.buffer_sets.calls_for(k, arm), BLOCK_LIMIT_S, arm.function.__name__
            )
        return self._usable(plan)

    def _warm(self, side: str, plan: int, limit_s: float) -> float:
        """Run as `_make_warm` does; return microseconds a call of a block after that."""
        self._make_warm(side, plan, limit_s)
        return self._block(side, plan, BLOCK_LIMIT_S) / self.buffer_sets.calls

    def _make_warm(self, side: str, plan: int, limit_s: float) -> None:
        """Run until WARM_CALLS and WARM_US are done."""
        spent, calls = 0.0, 0
        while calls < WARM_CALLS or spent < WARM_US:
            spent += self._open_block(side, plan, limit_s)
            calls += self.buffer_sets.calls
            limit_s = BLOCK_LIMIT_S

    def _open_block(self, side: str, plan: int, limit_s: float) -> float:
        """Run a plan with the gate open, so that all is compiled and allocated; microseconds, roughly."""
        start = time.perf_counter_ns()
        self._must(self._worker(side).go(plan, limit_s))
        return (time.perf_counter_ns() - start) / 1e3

    def _fastest_arm(self) -> tuple[Arm, float]:
        """Return the fastest baseline, and microseconds of its call; what an empty block takes is taken off.

        While the baselines warm up, the student's process sets itself up; it is waited for before any of
        them is timed. Each then runs once more, because the GPU may have waited.
        """
        self.buffer_sets.write(self.buffer_sets.draw(), 0)
        plans = [(self._plan("reference", 0, arm), arm) for arm in self.speed.baselines]
        for plan, _ in plans:
            self._make_warm("reference", plan, BLOCK_LIMIT_S)
        self._must(self.student.set_up())
        times, overhead_us = [], self._overhead(FEWEST_EMPTY_BLOCKS)
        for plan, arm in plans:
            self._open_block("reference", plan, BLOCK_LIMIT_S)
            times.append((self._block("reference", plan, BLOCK_LIMIT_S), arm))
        best, arm = min(times, key=lambda pair: pair[0])
        return arm, (best - overhead_us) / self.buffer_sets.calls

    def _time_arm(self, arm: Arm) -> float:
        plan = self._plan("reference", 0, arm)
        self._open_block("reference", plan, BLOCK_LIMIT_S)
        return (
            statistics.median([self._block("reference", plan, BLOCK_LIMIT_S, rests=True) for _ in range(5)])
            / self.buffer_sets.calls
        )

    def _overhead(self, blocks: int = EMPTY_BLOCKS) -> float:
        """Microseconds of a block without calls, of the reference worker alone: a student's could be slow on
        purpose.
        """
        empty = self.reference.prepare(
            self.exercise, [], BLOCK_LIMIT_S, self.speed.baselines[0].function.__name__
        )
        plan = self._usable(empty)
        self._open_block("reference", plan, BLOCK_LIMIT_S)
        return statistics.median([self._block("reference", plan, BLOCK_LIMIT_S) for _ in range(blocks)])

    def _must(self, failed: Outcome | None) -> None:
        if failed:
            raise UnfitError(failed)

    def _usable(self, plan: int | Outcome) -> int:
        if isinstance(plan, Outcome):
            raise UnfitError(plan)
        return plan

    def _outcome(
        self,
        arm: Arm,
        rounds: Sequence[Round],
        result: statistics.Estimate,
        usual_us: float,
        disturbed: int,
        peers: Mapping[str, float],
        configs: Mapping[str, str],
    ) -> Outcome:
        overhead_us, speed, calls = self.overhead_us, self.speed, self.buffer_sets.calls
        student_us = statistics.median([(min(r.student_us) - overhead_us) / calls for r in rounds])
        reference_us = statistics.median([(min(r.reference_us) - overhead_us) / calls for r in rounds])
        if min(student_us, reference_us) <= 0.0 or not math.isfinite(result.high):
            where = f"a block is shorter than the {overhead_us:.0f} us that an empty one takes"
            return Outcome(Verdict.INCONCLUSIVE, where=where)
        bytes_moved = speed.bytes_moved(self.case)
        flops = speed.flops(self.case) if speed.flops else 0
        least = (
            statistics.floor_us(bytes_moved, flops, self.gpu.bandwidth, self.gpu.peak_flops)
            if self.gpu
            else 0.0
        )
        percent = 100.0 * result.ratio
        verdict = scoring.speed_verdict(percent, speed)
        if student_us < least:
            verdict = Verdict.IMPOSSIBLE
        elif not result.conclusive:
            verdict = Verdict.INCONCLUSIVE
        timing = Timing(
            shape=dict(self.case.params),
            dtype=self.case.dtype,
            baseline=arm.name,
            calls_per_block=calls,
            student_us=student_us,
            reference_us=reference_us,
            alone_us=usual_us / calls,
            percent_of_baseline=percent,
            interval_percent=(100.0 * result.low, 100.0 * result.high),
            zero_at_percent=speed.zero_at,
            passing_at_percent=speed.passing_at,
            full_at_percent=speed.full_at,
            overhead_us=overhead_us,
            bytes_moved=bytes_moved,
            flops=flops,
            floor_us=least,
            terabytes_per_s=bytes_moved / student_us / 1e6,
            teraflops_per_s=flops / student_us / 1e6,
            peers_us={name: us - overhead_us / calls for name, us in peers.items()},
            rounds=tuple(rounds),
            rounds_dropped=disturbed,
            configs=dict(configs),
            clocks=_clocks(self.clocks),
        )
        found = diagnosis.cause_of(self.lab, Symptom.SLOW) if verdict is Verdict.SLOW else None
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
            timing=timing,
        )


def _gpu_us(work: Callable[[], None], session: Session) -> float:
    """Return the microseconds that a GPU takes for the work that `work` queues; 0 where there is none."""
    if session.device == "cpu":
        work()
        return 0.0
    torch.cuda.synchronize()
    started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    started.record()
    work()
    ended.record()
    torch.cuda.synchronize()
    return 1e3 * started.elapsed_time(ended)


def _clocks(reader: ClockReader) -> Clocks:
    """What was sampled between the blocks."""
    samples = reader.samples
    return Clocks(
        sm_mhz=_spread(samples.sm_mhz),
        watts=_spread(samples.watts),
        celsius=_spread(samples.celsius),
        reasons=tuple(sorted(samples.reasons)),
        unread=reader.missing,
    )


def _spread(values: Sequence[float]) -> Spread | None:
    """None where nothing was sampled."""
    if not values:
        return None
    least, middle, most = statistics.spread(values)
    return Spread(least=least, median=middle, most=most)
