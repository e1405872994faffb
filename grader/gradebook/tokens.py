"""Which labs a student's tokens are spent on: the way that keeps most points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from grader.gradebook.late import LatePolicy


@dataclass(frozen=True)
class Late:
    """How late one lab was, the tokens that were spent on it, and the share of its points that is lost."""

    days: int = 0
    tokens: int = 0
    lost: Fraction = Fraction(0)


def spend(policy: LatePolicy, handed_in: Sequence[tuple[float, int]], tokens: int) -> list[Late]:
    """The best use of `tokens` for labs as (points, days late), in the order in which they are due.

    Most points kept, then fewest tokens spent, then those that are spent on what is due first. Every way is
    compared exactly, so the answer does not depend on the order of the students or on rounding.
    """

    @cache
    def best(first: int, left: int) -> tuple[Fraction, int, tuple[int, ...]]:
        """Points kept from lab `first` on, tokens left over, tokens by lab; the largest is best."""
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
