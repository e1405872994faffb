"""Find the formula that a wrong output follows, a few operations away from the reference's values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch

from grader.judge.formula.formula import Formula, One, Two, follows
from grader.judge.formula.sums import sums_of_products
from grader.judge.formula.terms import Term

PLACES = 61  # elements that every formula is tried on; all elements, once it fits there
FEWER = 5  # of which each so many-th is enough to leave out nearly all formulas of three terms
SUMMED = re.compile(r"sum\((\w+)")
MOST_TERMS = 36
MOST_HITS = 50  # formulas of one kind that are tried on all elements
LEAST_FACTOR, MOST_FACTOR = 1e-5, 1e5  # of a term with a factor that is fitted
UNARY: dict[str, One] = {
    "exp({})": torch.exp,
    "log({})": torch.log,
    "sqrt({})": torch.sqrt,
    "rsqrt({})": torch.rsqrt,
    "abs({})": torch.abs,
    "max({}, 0)": torch.relu,
    "-{}": torch.neg,
    "1 / {}": torch.reciprocal,
    "{} ** 2": torch.square,
}
BINARY: dict[str, Two] = {"+": torch.add, "-": torch.sub, "*": torch.mul, "/": torch.div}


class Followed(NamedTuple):
    """The terms of one call, and its output, which may follow a formula of them; both in fp64."""

    terms: Sequence[Term]
    got: torch.Tensor


def formula_of(terms: Sequence[Term], got: torch.Tensor, others: Sequence[Followed] = ()) -> Formula | None:
    """Return the formula of the terms that `got` follows: of those with the fewest operations, the shortest.

    It must hold for `others` as well, which are calls with other inputs, and best with other sizes. `terms`
    and `got` are in fp64. None if there is none, where too few elements say anything, and where there is a
    NaN or inf.
    """
    places = torch.linspace(0, got.numel() - 1, PLACES).long()
    if got.numel() < PLACES or not bool(got.isfinite().all()):
        return None
    sample = got.reshape(-1)[places]
    if bool((sample == sample[0]).all()):
        return None
    plain, rows = _sampled(terms, got.shape, places)
    if not plain:
        return None
    sampled = plain, rows, sample
    stages: tuple[Callable[[], Iterator[Formula]], ...] = (
        *(partial(stage, *sampled) for stage in (_of_one, _of_two, _functions_of_two)),
        partial(sums_of_products, terms, got),
        *(partial(stage, *sampled) for stage in (_of_three, _with_factors, _with_an_input)),
    )
    for stage in stages:
        fitting = [
            one
            for one in stage()
            if not _counts(one.text)
            and holds(one, terms, got)
            and all(holds(one, _in_order(terms, other.terms), other.got) for other in others)
        ]
        if fitting:
            return min(fitting, key=lambda one: (len(one.text), one.text))
    return None


def _counts(text: str) -> bool:
    """Return whether a formula has the mean and the sum of one value, of which only their number is left."""
    return any(f"mean({inner}" in text for inner in SUMMED.findall(text))


def holds(formula: Formula, terms: Sequence[Term], got: torch.Tensor) -> bool:
    """Return whether every element follows a formula; False where a term is missing or has another shape."""
    try:
        values = formula.of(terms, got.shape)
    except (RuntimeError, IndexError):
        return False
    return bool(follows(got.reshape(-1), values.reshape(-1)))


def _in_order(terms: Sequence[Term], others: Sequence[Term]) -> list[Term]:
    """Return the terms of another call in the order of these; NaN for a term that it does not have."""
    known = {term.text: term for term in others}
    missing = torch.tensor(torch.nan, dtype=torch.float64)
    return [known.get(term.text, Term(term.text, missing)) for term in terms]


def _sampled(
    terms: Sequence[Term], shape: torch.Size, places: torch.Tensor
) -> tuple[list[Formula], torch.Tensor]:
    """Return the terms that fit the shape and differ, and their values at the places, a row for each."""
    found: list[Formula] = []
    rows: list[torch.Tensor] = []
    for number, term in enumerate(terms):
        try:
            row = term.value.expand(shape).reshape(-1)[places]
        except RuntimeError:  # of another shape
            continue
        if bool(row.isfinite().all()) and not any(torch.equal(row, other) for other in rows):
            found.append(Formula(term.text, (number,), lambda values: values[0]))
            rows.append(row)
    return found[:MOST_TERMS], torch.stack(rows[:MOST_TERMS]) if rows else torch.empty(0, len(places))


def _hits(sample: torch.Tensor, values: torch.Tensor) -> list[list[int]]:
    """Return where the sample follows the values, along all dimensions but the last."""
    return follows(sample, values).nonzero().tolist()[:MOST_HITS]


def _of_one(plain: Sequence[Formula], rows: torch.Tensor, sample: torch.Tensor) -> Iterator[Formula]:
    yield from (plain[at] for (at,) in _hits(sample, rows))
    for words, function in UNARY.items():
        yield from (plain[at].inside(words, function) for (at,) in _hits(sample, function(rows)))


def _of_two(plain: Sequence[Formula], rows: torch.Tensor, sample: torch.Tensor) -> Iterator[Formula]:
    """Yield a term and a term, and a function of a term and a term, in both orders."""
    for sign, operate in BINARY.items():
        for one, other in _hits(sample, operate(rows[:, None], rows[None])):
            yield plain[one].joined(sign, operate, plain[other])
        for words, function in UNARY.items():
            changed = function(rows)
            for one, other in _hits(sample, operate(changed[:, None], rows[None])):
                yield plain[one].inside(words, function).joined(sign, operate, plain[other])
            for one, other in _hits(sample, operate(rows[:, None], changed[None])):
                yield plain[one].joined(sign, operate, plain[other].inside(words, function))


def _functions_of_two(
    plain: Sequence[Formula], rows: torch.Tensor, sample: torch.Tensor
) -> Iterator[Formula]:
    for sign, operate in BINARY.items():
        pairs = operate(rows[:, None], rows[None])
        for words, function in UNARY.items():
            for one, other in _hits(sample, function(pairs)):
                yield plain[one].joined(sign, operate, plain[other]).inside(words, function)


def _of_three(plain: Sequence[Formula], rows: torch.Tensor, sample: torch.Tensor) -> Iterator[Formula]:
    rows, sample = rows[:, ::FEWER], sample[::FEWER]
    for sign, operate in BINARY.items():
        pairs = operate(rows[:, None], rows[None])
        for outer, around in BINARY.items():
            for at, third in enumerate(plain):
                for one, other in _hits(sample, around(pairs, rows[at])):
                    yield plain[one].joined(sign, operate, plain[other]).joined(outer, around, third)
                for one, other in _hits(sample, around(rows[at], pairs)):
                    yield third.joined(outer, around, plain[one].joined(sign, operate, plain[other]))


def _with_an_input(plain: Sequence[Formula], rows: torch.Tensor, sample: torch.Tensor) -> Iterator[Formula]:
    """Yield up to three terms, plus an input or times one, such as a bias or a weight."""
    for at, last in enumerate(plain):
        if last.text.isidentifier():
            for sign, operate, undone in (
                ("+", torch.add, sample - rows[at]),
                ("*", torch.mul, sample / rows[at]),
            ):
                if bool(undone.isfinite().all()):
                    yield from (one.joined(sign, operate, last) for one in _of_three(plain, rows, undone))


def _with_factors(plain: Sequence[Formula], rows: torch.Tensor, sample: torch.Tensor) -> Iterator[Formula]:
    """Yield a term with a factor, and a term or a product of two with one that has a factor, all fitted."""
    products = [(at, other) for at in range(len(plain)) for other in range(at, len(plain))]
    values = torch.cat([rows, torch.stack([rows[a] * rows[b] for a, b in products])])
    named = [*plain, *(plain[a].joined("*", torch.mul, plain[b]) for a, b in products)]
    zero = torch.zeros_like(sample)
    for first, begin in [(None, zero), *zip(named, values, strict=True)]:
        rest = sample - begin
        factors = (values @ rest) / values.square().sum(dim=1)
        size = factors.abs()
        usable = (size > LEAST_FACTOR) & (size < MOST_FACTOR)
        for (at,) in _hits(
            sample, torch.where(usable[:, None], begin + factors[:, None] * values, torch.inf)
        ):
            factor = float(factors[at])
            if first is None:
                yield named[at].times(factor)
            else:
                sign, operate = ("-", torch.sub) if factor < 0.0 else ("+", torch.add)
                yield first.joined(sign, operate, named[at].times(abs(factor)))
