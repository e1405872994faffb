"""What the timing of one shape measured: times, rounds, clocks, and the rates that follow from them."""

from __future__ import annotations

import math

from pydantic import FiniteFloat

from grader.results.base import Model


class Round(Model):
    """Times in microseconds of one ABBA round: two blocks each, fresh data in each half."""

    reference_us: tuple[FiniteFloat, FiniteFloat]
    student_us: tuple[FiniteFloat, FiniteFloat]

    def ratio(self, overhead_us: float) -> float:
        """Reference over student, the hand-shake of each block taken off; 2.0 is twice as fast."""
        student = sum(self.student_us) - 2 * overhead_us
        return (sum(self.reference_us) - 2 * overhead_us) / student if student > 0.0 else math.inf


class Spread(Model):
    """Samples of one quantity."""

    least: FiniteFloat
    median: FiniteFloat
    most: FiniteFloat


class Clocks(Model):
    """What NVML said of the GPU between the blocks; None where nothing was sampled."""

    sm_mhz: Spread | None
    watts: Spread | None
    celsius: Spread | None
    reasons: tuple[str, ...]  # clock reasons that were active
    unread: str  # why something was not sampled


class Timing(Model):
    """One timed shape. Times are of one call, the hand-shake around a block taken off; a round's are raw."""

    shape: dict[str, int | float | str | bool]
    dtype: str
    baseline: str  # the fastest function that the student's is held against
    calls_per_block: int
    student_us: FiniteFloat
    reference_us: FiniteFloat
    percent_of_baseline: FiniteFloat  # the median, or its upper end where the interval stayed wide
    interval_percent: tuple[FiniteFloat, FiniteFloat]
    zero_at_percent: float | None = None  # where points begin; schema 1 has none of these three
    passing_at_percent: float | None = None
    full_at_percent: float | None = None
    overhead_us: FiniteFloat  # of the hand-shake around a block
    bytes_moved: int  # each input once, each output once
    flops: int  # of one call; 0 where bandwidth decides
    floor_us: FiniteFloat  # the least time that physics allows; 0 if unknown
    terabytes_per_s: FiniteFloat
    teraflops_per_s: FiniteFloat
    peers_us: dict[str, FiniteFloat]  # of functions that are timed and shown without points
    rounds: tuple[Round, ...]
    rounds_dropped: int
    configs: dict[str, str]  # what each autotuned kernel ran with, by its name
    claimed_us: FiniteFloat  # by the worker's own clock
    timing_mismatch: bool  # that clock disagrees with the judge's
    clocks: Clocks

    @property
    def ratios_percent(self) -> list[float]:
        """The speed of each round in percent of the baseline's; without rounds that have no finite ratio."""
        ratios = (100.0 * one.ratio(self.overhead_us) for one in self.rounds)
        return [ratio for ratio in ratios if math.isfinite(ratio)]

    @property
    def rate(self) -> str:
        """`512 TFLOP/s`, or `3.41 TB/s` where bandwidth decides."""
        return f"{self.teraflops_per_s:.0f} TFLOP/s" if self.flops else f"{self.terabytes_per_s:.2f} TB/s"
