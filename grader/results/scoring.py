"""Turn verdicts and measurements into points: pure arithmetic, no torch, no printing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from grader.course.spec import Speed, Verdict
from grader.results.base import DECIMALS
from grader.results.models import ItemResult

UNGRADED = (Verdict.NOT_GRADED, Verdict.GRADER_FAULT)  # their points are neither earned nor lost


class Total(NamedTuple):
    """Points earned, points that were graded, and points that this run could not grade, to six decimals."""

    earned: float
    graded: float
    not_graded: float

    @property
    def most(self) -> float:
        """All points: graded and not graded."""
        return round(self.graded + self.not_graded, DECIMALS)


def speed_share(percents: Sequence[float], speed: Speed) -> float:
    """Return the share of the speed points, 0 to 1, for the percent of the baseline at each shape.

    Each percentage counts as 100 at most; the share is linear in their geometric mean.
    """
    if not percents:
        return 0.0
    capped = [min(percent, 100.0) for percent in percents]
    if min(capped) <= 0.0:
        return 0.0
    mean = geometric_mean(capped)
    return min(1.0, max(0.0, (mean - speed.zero_at) / (speed.full_at - speed.zero_at)))


def speed_verdict(percent: float, speed: Speed) -> Verdict:
    """Return PASS for a percent of the baseline at which a timed shape passes, else SLOW."""
    return Verdict.PASS if percent >= speed.passing_at else Verdict.SLOW


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive values; ValueError if there are none."""
    if not values:
        raise ValueError("the geometric mean of nothing")
    return math.exp(sum(map(math.log, values)) / len(values))


def is_open(item: ItemResult) -> bool:
    """Whether an item's points were not graded, also because its timing decided nothing.

    Runs of timing protocol 1 counted the better end of an inconclusive interval; they keep these points.
    """
    without = item.verdict is Verdict.INCONCLUSIVE and item.timing is None
    return item.verdict in UNGRADED or item.undecided or without


def total(items: Iterable[ItemResult]) -> Total:
    """Add up the points of several items."""
    earned, graded, still_open = [], [], []
    for item in items:
        if is_open(item):
            still_open.append(item.max_points)
        else:
            earned.append(item.points)
            graded.append(item.max_points)
    return Total(*(round(math.fsum(values), DECIMALS) for values in (earned, graded, still_open)))
