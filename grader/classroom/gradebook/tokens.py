"""Spend a student's tokens (free late days) on the labs where they save the most points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from grader.classroom.gradebook.late import LatePolicy


@dataclass(frozen=True)
class Late:
    """Late days of one lab, tokens spent on it, and the share of its points that is lost."""

    days: int = 0
    tokens: int = 0
    lost: Fraction = Fraction(0)


def spend(policy: LatePolicy, handed_in: Sequence[tuple[float, int]], tokens: int) -> list[Late]:
    """Return the best use of `tokens` for labs given as (points, days late), ordered by due date.

    Priorities: most points kept, then fewest tokens spent, then tokens spent on the labs due first. All ways
    are compared with exact fractions, so the result does not depend on rounding.
    """

    @cache
    def best(first: int, left: int) -> tuple[Fraction, int, tuple[int, ...]]:
        """Return points kept from lab `first` on, tokens left, and tokens by lab; the maximum is best."""
        if first == len(handed_in):
            return Fraction(0), left, ()
        points, days = handed_in[first]
        ways = []
        for spent in range(min(left, days) + 1):
            kept, over, others = best(first + 1, left - spent)
            ways.append((Fraction(points) * (1 - policy.lost(days - spent)) + kept, over, (spent, *others)))
        return max(ways)

    _, _, by_lab = best(0, tokens)
    return [
        Late(days, spent, policy.lost(days - spent))
        for (_, days), spent in zip(handed_in, by_lab, strict=True)
    ]
