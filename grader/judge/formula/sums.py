"""Outputs that are sums of products along the rows or columns, such as the gradient of a weight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from grader.judge.formula.formula import Formula, follows
from grader.judge.formula.terms import Term, enclosed

MOST_MATRICES = 24
MOST_PLACES = 13  # elements of the output that every sum is tried on
MOST_NUMBERS = 1 << 22  # that are held at once
MOST_HITS = 20


def sums_of_products(terms: Sequence[Term], got: torch.Tensor) -> Iterator[Formula]:
    """Yield the sums of products of up to three matrices that some elements of a vector follow.

    `terms` and `got` are in fp64, as in `formula_of`.
    """
    if got.dim() != 1:
        return
    places = torch.linspace(0, got.numel() - 1, MOST_PLACES).long()
    for axis in (0, 1):
        found = list[int]()
        rows = list[torch.Tensor]()
        for number, (_, value) in enumerate(terms):
            if value.dim() == 2 and value.shape[1 - axis] == got.numel() and value.shape[axis] > 1:
                row = value.movedim(axis, 1)[places]
                if bool(row.isfinite().all()) and not any(torch.equal(row, other) for other in rows):
                    found.append(number)
                    rows.append(row)
        if rows:
            yield from _products(terms, found[:MOST_MATRICES], torch.stack(rows), got[places], axis)


def _products(
    terms: Sequence[Term], numbers: Sequence[int], rows: torch.Tensor, sample: torch.Tensor, axis: int
) -> Iterator[Formula]:
    """`rows` has for each term a matrix whose rows are to be summed, one for each element of the sample."""
    count = len(numbers)
    rows = rows[:count]
    pairs = [(a, b) for a in range(count) for b in range(a, count)]
    products = torch.stack([rows[a] * rows[b] for a, b in pairs])
    for at in follows(sample, products.sum(dim=2)).nonzero()[:MOST_HITS, 0].tolist():
        yield _formula(terms, [numbers[one] for one in pairs[at]], axis)
    if products.numel() > MOST_NUMBERS:
        return
    for third in range(count):
        sums = torch.einsum("kpr,pr->kp", products, rows[third])
        for at in follows(sample, sums).nonzero()[:MOST_HITS, 0].tolist():
            if pairs[at][1] <= third:
                yield _formula(terms, [numbers[one] for one in (*pairs[at], third)], axis)


def _formula(terms: Sequence[Term], parts: Sequence[int], axis: int) -> Formula:
    text = " * ".join(enclosed(terms[part].text) for part in parts)

    def compute(values: Sequence[torch.Tensor]) -> torch.Tensor:
        product = values[0]
        for value in values[1:]:
            product = product * value
        return product.sum(dim=axis)

    return Formula(f"sum({text}, axis={axis})", tuple(parts), compute)
