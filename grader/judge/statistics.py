"""Statistics of paired rounds and the limits of physics; pure arithmetic on times that the judge took itself.

Method: rounds in ABBA order, their ratio by Hodges and Lehmann (Estimates of Location Based on Rank Tests,
1963), an order-statistic interval of the median (Conover, Practical Nonparametric Statistics), and, as in
NVIDIA's nvbench, a stop rule that looks at the width and never at the value. The reference can be slowed by
what a submission leaves on the GPU: of each round the faster block counts, and of all rounds no more than
the reference takes while no process of the submission runs. `test_timing_simulation.py` shows that no
subset of slowed blocks raises a percentage by more than noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from statistics import fmean, median

from grader.results.timing import Round

FEWEST_ROUNDS = 7  # the extremes of which enclose the median with 98 %; with less than six it is below 95 %
MOST_ROUNDS = 80  # a second 40 are added to the first, which narrows the interval more than 40 new ones
# For all rounds of one shape, which hold the GPU: after the first of these seconds an interval that decides
# is enough, and after the second none is waited for. On a restless machine 80 rounds take half a minute.
ENOUGH_S, PATIENCE_S = 1.8, 9.0
HALF_WIDTH = 0.005  # stop once the interval is this narrow on either side; of the ratio where it is above 1:
# for a slow answer half a point of percent decides nothing, and half a percent of a tenth would take forever
# Where arithmetic is timed. Two GPUs of a kind differ most there, so that little is left for noise.
HALF_WIDTH_OF_ARITHMETIC = 0.002
WIDEST = 0.015  # an interval wider than this on either side after all rounds decides nothing
CONFIDENCE = 0.95
NEAR = 0.002  # how far the ratio may lie from the median of the rounds, as a share of it
LEEWAY = 0.01  # the reference counts at most this much slower than alone; a block's noise is about as large
INTERFERENCE = 1.1  # slower than alone by more than this, or at one position, and nothing is decided


@dataclass(frozen=True)
class Estimate:
    """Ratio of all rounds and its interval; `conclusive` if the interval is narrow enough to give points."""

    ratio: float
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
    """Return the ratio of the rounds so far and its interval.

    The ratio is the median of the means of all pairs of rounds, each with itself as well, which varies less
    than the median of the rounds. It stays near that median, which less than half of the rounds cannot move
    far, whatever they are slowed by.
    """
    low, high = interval(ratios)
    middle, pairs = median(ratios), median(map(fmean, combinations_with_replacement(ratios, 2)))
    middle = min(max(pairs, (1 - NEAR) * middle), (1 + NEAR) * middle)
    return Estimate(middle, low, high, len(ratios) >= FEWEST_ROUNDS and _within(WIDEST, low, middle, high))


def _within(half: float, low: float, middle: float, high: float) -> bool:
    return (high - low) / 2 <= half * max(middle, 1.0)


def usual_us(before: Sequence[float], after: Sequence[float], overhead_us: float) -> float:
    """Return the time of the reference's block while no process of the submission runs, in microseconds.

    `before` are blocks taken before any line of it has run, and `after` when its process has ended; in pairs
    that follow one another: as in a round the faster of two counts. Of the two medians it is the larger,
    because a GPU may become slower as it gets warm.
    """
    return max(median(map(min, blocks[::2], blocks[1::2])) for blocks in (before, after)) - overhead_us


def correction(rounds: Sequence[Round], usual_us: float, overhead_us: float) -> float:
    """Return the factor, at most 1, by which ratios are too high because the reference was slowed."""
    now_us = median(min(one.reference_us) for one in rounds) - overhead_us
    return min(1.0, (1.0 + LEEWAY) * usual_us / now_us) if now_us > 0.0 else 1.0


def disturbance(rounds: Sequence[Round], usual_us: float, overhead_us: float) -> str:
    """Return what disturbed the reference's blocks, compared by their position; "" for nothing."""
    first, last = (median(one.reference_us[at] for one in rounds) - overhead_us for at in (0, 1))
    for name, own, other in (("first", first, last), ("last", last, first)):
        if own > INTERFERENCE * max(usual_us, 1e-9):
            times = f"{own / max(usual_us, 1e-9):.1f} times as long as without the student's process"
            return f"the reference's {name} block of a round took {times}"
        if own > INTERFERENCE * max(other, 1e-9):
            times = f"{own / max(other, 1e-9):.1f} times as long as the other"
            return f"the reference's {name} block of a round took {times}"
    return ""


def judged(rounds: Sequence[Round], usual_us: float, overhead_us: float) -> tuple[Estimate, str]:
    """Return what rounds say about the ratio, and what disturbed them; "" if nothing did.

    `usual_us` is the reference's block alone, less its overhead, and `overhead_us` that of a block.
    """
    factor = correction(rounds, usual_us, overhead_us)
    ratios = [factor * one.ratio(overhead_us) for one in rounds]
    return estimate(ratios), disturbance(rounds, usual_us, overhead_us)


def finished(ratios: Sequence[float], seconds: float = 0.0, half_width: float = HALF_WIDTH) -> bool:
    """Enough rounds: the interval is narrow, or patience is at its end after `seconds` of them.

    It is narrow if it is at most `half_width` to either side. Patience is shorter if the interval is
    conclusive.
    """
    if len(ratios) < FEWEST_ROUNDS:
        return False
    now = estimate(ratios)
    narrow = _within(half_width, now.low, now.ratio, now.high)
    patience_s = ENOUGH_S if now.conclusive else PATIENCE_S
    return len(ratios) >= MOST_ROUNDS or seconds >= patience_s or narrow


def floor_us(bytes_moved: int, flops: int, bandwidth: float, peak_flops: float) -> float:
    """The least time physics allows for one call, from dense peak FLOP/s and theoretical bytes/s; 0 if
    unknown.
    """
    by_memory = bytes_moved / bandwidth if bandwidth else 0.0
    by_arithmetic = flops / peak_flops if peak_flops else 0.0
    return 1e6 * max(by_memory, by_arithmetic)
