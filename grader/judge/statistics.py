"""Statistics of paired rounds and the limits of physics; pure arithmetic on times that the judge took itself.

Method: rounds in ABBA order, an order-statistic interval of the median (Conover, Practical Nonparametric
Statistics), and, as in NVIDIA's nvbench, a stop rule that looks at the width and never at the value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

FEWEST_ROUNDS = 11
MOST_ROUNDS = 80  # a second 40 are added to the first, which narrows the interval more than 40 new ones
PATIENCE_S = 9.0  # for all rounds of one shape: on a restless machine 80 large ones would take half a minute
HALF_WIDTH = 0.005  # stop once the interval is this narrow on either side; of the ratio where it is above 1:
# for a slow answer half a point of percent decides nothing, and half a percent of a tenth would take forever
CONFIDENCE = 0.95
MISMATCH_SHARE, MISMATCH_US = 0.03, 30.0  # a worker's own time may differ by this much per call


@dataclass(frozen=True)
class Estimate:
    """Median ratio and its interval; `conclusive` where the interval is narrow enough."""

    median: float
    low: float
    high: float
    conclusive: bool


def spread(values: Sequence[float]) -> list[float]:
    """Least, median and most; empty where nothing was sampled."""
    return [min(values), median(values), max(values)] if values else []


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Order-statistic interval of the median with at least 95 % coverage; the extremes where too few are
    given.
    """
    ordered, n = sorted(values), len(values)
    below, rank = 0.0, 0
    while rank < n // 2 and 2 * (below + math.comb(n, rank) / 2**n) <= 1 - CONFIDENCE:
        below += math.comb(n, rank) / 2**n
        rank += 1
    rank = max(rank, 1)
    return ordered[rank - 1], ordered[n - rank]


def estimate(ratios: Sequence[float]) -> Estimate:
    """Median and interval of the ratios so far."""
    low, high = interval(ratios)
    middle = median(ratios)
    return Estimate(
        middle, low, high, len(ratios) >= FEWEST_ROUNDS and (high - low) / 2 <= HALF_WIDTH * max(middle, 1.0)
    )


def finished(ratios: Sequence[float], seconds: float = 0.0) -> bool:
    """Enough rounds: the interval is narrow, or patience is at its end after `seconds` of them."""
    if len(ratios) < FEWEST_ROUNDS:
        return False
    return len(ratios) >= MOST_ROUNDS or seconds >= PATIENCE_S or estimate(ratios).conclusive


def mismatch(judge_us: float, claimed_us: float | None, calls: int) -> bool:
    """Whether a worker's own time for a block differs from the judge's by more than noise and hand-shake."""
    if claimed_us is None:
        return False
    return abs(judge_us - claimed_us) > max(MISMATCH_SHARE * judge_us, MISMATCH_US * calls)


def floor_us(bytes_moved: int, flops: int, bandwidth: float, peak_flops: float) -> float:
    """The least time physics allows for one call, from dense peak FLOP/s and theoretical bytes/s; 0 if
    unknown.
    """
    by_memory = bytes_moved / bandwidth if bandwidth else 0.0
    by_arithmetic = flops / peak_flops if peak_flops else 0.0
    return 1e6 * max(by_memory, by_arithmetic)
