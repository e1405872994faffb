"""The timing of one shape: times, rounds, clocks, and the rates computed from them."""

from __future__ import annotations

import math

from pydantic import FiniteFloat

from grader.results.base import Model


class Round(Model):
    """Times in microseconds of one ABBA round: two blocks each, fresh data in each half."""

    reference_us: tuple[FiniteFloat, FiniteFloat]
    student_us: tuple[FiniteFloat, FiniteFloat]

    def ratio(self, overhead_us: float) -> float:
        """Return reference time over student time, less the overhead of a block; 2.0 is twice as fast.

        The faster block of each side counts: a disturbance only ever slows, and one that meets a single
        block of the reference must not raise the ratio.
        """
        student = min(self.student_us) - overhead_us
        return (min(self.reference_us) - overhead_us) / student if student > 0.0 else math.inf


class Spread(Model):
    """Samples of one quantity."""

    least: FiniteFloat
    median: FiniteFloat
    most: FiniteFloat


class Clocks(Model):
    """NVML's samples between the blocks; None for a quantity that was not sampled."""

    sm_mhz: Spread | None
    watts: Spread | None
    celsius: Spread | None
    reasons: tuple[str, ...]  # clock reasons that were active
    unread: str  # why something was not sampled


class Timing(Model):
    """One timed shape; times are per call, less the overhead around a block, but those of rounds are raw."""

    shape: dict[str, int | float | str | bool]
    dtype: str
    baseline: str  # the fastest function that the student's is compared with
    calls_per_block: int
    student_us: FiniteFloat
    reference_us: FiniteFloat
    alone_us: FiniteFloat | None = None  # the reference without a student's process; None in protocol 1
    percent_of_baseline: FiniteFloat  # the median; protocol 1: the better end of a wide interval
    interval_percent: tuple[FiniteFloat, FiniteFloat]
    zero_at_percent: float | None = None  # where points begin; schema 1 has none of these three
    passing_at_percent: float | None = None
    full_at_percent: float | None = None
    overhead_us: FiniteFloat  # what an empty block takes
    bytes_moved: int  # each input once, each output once
    flops: int  # of one call; 0 if bandwidth is the limit
    floor_us: FiniteFloat  # the shortest time that the hardware allows; 0 if unknown
    terabytes_per_s: FiniteFloat
    teraflops_per_s: FiniteFloat
    peers_us: dict[str, FiniteFloat]  # of functions that are timed and shown without an effect on points
    rounds: tuple[Round, ...]
    rounds_dropped: int
    configs: dict[str, str]  # what each autotuned kernel ran with, by its name
    claimed_us: FiniteFloat | None = None  # by the worker's own clock, which protocol 1 looked at
    timing_mismatch: bool = False  # it disagreed with the judge's
    clocks: Clocks

    @property
    def ratios_percent(self) -> list[float]:
        """The speed of each round in percent of the baseline, without rounds that have no finite ratio.

        The rounds of protocol 1 were scored by the sum of both blocks, which differs by less than noise.
        """
        ratios = (100.0 * one.ratio(self.overhead_us) for one in self.rounds)
        return [ratio for ratio in ratios if math.isfinite(ratio)]

    @property
    def rate(self) -> str:
        """The rate: `512 TFLOP/s`, or `3.41 TB/s` if bandwidth is the limit."""
        return f"{self.teraflops_per_s:.0f} TFLOP/s" if self.flops else f"{self.terabytes_per_s:.2f} TB/s"
