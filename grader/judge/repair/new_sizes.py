"""Cases of sizes that no listed case has: an edit that fits the listed ones by chance is wrong there.

A repair that passes the tests it was found with may still be wrong (Smith et al., Is the cure worse than the
disease? Overfitting in automated program repair, 2015); the cure is to try it on others.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from grader.course.spec import Case

TRIES = 20  # draws of sizes, of which one must be small enough


def of_other_sizes(
    case: Case, cases: Sequence[Case], dimensions: frozenset[int], fewest: int, most: int
) -> Iterator[Case]:
    """Yield cases like this one with other sizes, between the smallest and the largest of `cases`.

    A size is a whole number in the case's params that is one of its tensors' `dimensions`. Their product is
    from `fewest` to `most` elements. Nothing is yielded where the listed cases leave no size open.
    """
    names = [name for name, value in case.params.items() if type(value) is int and value in dimensions]
    listed = {
        name: sorted({size for one in cases if type(size := one.params.get(name)) is int}) for name in names
    }
    drawn = random.Random(case.name)
    for _ in range(TRIES):
        sizes = {name: _drawn(drawn, listed[name]) for name in names}
        if fewest <= math.prod(sizes.values()) <= most and any(
            sizes[name] not in listed[name] for name in names
        ):
            yield replace(case, params={**case.params, **sizes}, label="")


def _drawn(drawn: random.Random, listed: Sequence[int]) -> int:
    """Return a size from the smallest to the largest of those listed; as they all are a multiple, or one of
    them if they all are powers of two, as blocks without a mask need it.
    """
    if all(size > 0 and size & (size - 1) == 0 for size in listed):
        return drawn.choice(listed)
    unit = math.gcd(*listed)
    least, largest = max(listed[0], unit), listed[-1]
    size = round(math.exp(drawn.uniform(math.log(least), math.log(largest))) / unit) * unit
    return max(least, min(largest, size))
