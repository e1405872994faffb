"""Turn measurements into points: pure arithmetic, no torch, no printing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from grader.spec import Speed, Verdict

UNGRADED = (Verdict.NOT_GRADED, Verdict.GRADER_FAULT)  # points stay open: nobody's answer was judged


def speed_share(percents: Sequence[float], speed: Speed) -> float:
    """Share of the speed points for percents of the baseline, one a shape; each counts for 100 at most."""
    if not percents:
        return 0.0
    capped = [min(percent, 100.0) for percent in percents]
    if min(capped) <= 0.0:
        return 0.0
    mean = geometric_mean(capped)
    return min(1.0, max(0.0, (mean - speed.zero_at) / (speed.full_at - speed.zero_at)))


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive values; ValueError for none."""
    if not values:
        raise ValueError("the geometric mean of nothing")
    return math.exp(sum(map(math.log, values)) / len(values))


def total(results: Iterable) -> tuple[float, float, float]:
    """Points earned, points that were graded, and points that this run could not grade."""
    earned = graded = open_points = 0.0
    for result in results:
        noise = result.verdict is Verdict.INCONCLUSIVE and "percent" not in result.figures
        if result.verdict in UNGRADED or noise:  # what the machine disturbed costs nobody points
            open_points += result.max_points
        else:
            earned += result.points
            graded += result.max_points
    return earned, graded, open_points
