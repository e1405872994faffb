"""tl.reduce and tl.associative_scan with any function combine whole blocks, in the form of a tree.

Triton's interpreter, 3.6 to 3.9, combines one element after the other, which takes a millisecond for some
ten elements and rounds as often as there are elements. A GPU combines pairs, then pairs of results.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import InterpreterError, ReduceOps, ScanOps

NUMPY_FLOATS = (tl.float16, tl.float32, tl.float64)  # others are bits in an array of whole numbers
GROUPED = 3  # elements that are combined in both groupings
FIRST = 6  # elements of which each three neighbours are: with both directions 8 times, a power of 2
Parts = list[np.ndarray]  # the data of each input, with the axis of the reduction first


class _NeedsNumbersError(Exception):
    """The function decides by a value, as Python's `if` does, and so takes single elements only."""


def combine_whole_blocks() -> None:
    """Replace the loops over elements; a function that decides by an `if` still gets one after the other."""
    reduce_one_by_one, scan_one_by_one = ReduceOps.generic_reduce, ScanOps.generic_scan

    def reduced(self: Any, values: Sequence[tl.tensor]) -> list[tl.tensor]:
        rank = values[0].handle.data.ndim
        flat = self.axis is None
        axis = 0 if flat else self.axis % rank
        parts = [
            value.handle.data.reshape(-1) if flat else np.moveaxis(value.handle.data, axis, 0)
            for value in values
        ]
        try:
            found = [part[0] for part in _reduced(_combiner(self, [value.dtype for value in values]), parts)]
        except _NeedsNumbersError:
            return reduce_one_by_one(self, values)
        if self.keep_dims:
            found = [one.reshape((1,) * rank) if flat else np.expand_dims(one, axis) for one in found]
        return _as_values(self, found, values)

    def scanned(self: Any, values: Sequence[tl.tensor]) -> list[tl.tensor]:
        axis = self.axis % values[0].handle.data.ndim
        parts = [np.moveaxis(value.handle.data, axis, 0) for value in values]
        try:
            found = _scanned(_combiner(self, [value.dtype for value in values]), parts)
        except _NeedsNumbersError:
            return scan_one_by_one(self, values)
        return _as_values(self, [np.moveaxis(one, 0, axis) for one in found], values)

    ReduceOps.generic_reduce, ScanOps.generic_scan = reduced, scanned


def both_groupings(operation: Any, values: Sequence[tl.tensor]) -> tuple[Parts, Parts, Parts] | None:
    """Combine three elements along the axis in both groupings, `(a b) c` and `a (b c)`.

    They are neighbours among the first ones, in both directions: three may be alike by chance.
    Floating-point numbers are taken as fp64: where terms cancel, rounding to fewer digits differs by the
    grouping, too. Return the three elements, each with all its values behind the first axis, and both
    results, each a list with the arrays of all inputs; None if there are fewer elements, if the interpreter
    keeps other floating-point numbers as bits, if the function decides by a value, or if it fails.
    """
    floating = [value.dtype for value in values if value.dtype.is_floating()]
    if not all(dtype in NUMPY_FLOATS for dtype in floating):
        return None
    parts = [
        value.handle.data.reshape(-1)
        if operation.axis is None
        else np.moveaxis(value.handle.data, operation.axis % value.handle.data.ndim, 0)
        for value in values
    ]
    if len(parts[0]) < GROUPED:
        return None
    dtypes = [tl.float64 if value.dtype in floating else value.dtype for value in values]
    firsts = [
        part[:FIRST].astype(np.float64) if dtype is tl.float64 else part[:FIRST]
        for part, dtype in zip(parts, dtypes, strict=True)
    ]
    last = len(firsts[0]) - GROUPED + 1
    forwards = [[part[at : at + last] for part in firsts] for at in range(GROUPED)]
    a, b, c = (
        [np.concatenate(pair) for pair in zip(one, other, strict=True)]
        for one, other in zip(forwards, reversed(forwards), strict=True)
    )
    three = [np.stack(parts_of) for parts_of in zip(a, b, c, strict=True)]
    combine = _combiner(operation, dtypes)
    try:
        with np.errstate(all="ignore"):
            return three, combine(combine(a, b), c), combine(a, combine(b, c))
    except (_NeedsNumbersError, InterpreterError):
        return None


def _reduced(combine: Callable[[Parts, Parts], Parts], parts: Parts) -> Parts:
    """Combine neighbours until one is left: the order is kept, and a block has a power of two of elements."""
    while len(parts[0]) > 1:
        parts = combine([one[0::2] for one in parts], [one[1::2] for one in parts])
    return parts


def _scanned(combine: Callable[[Parts, Parts], Parts], parts: Parts) -> Parts:
    """Combine each element with all before it: the scan of pairs gives every second result."""
    if len(parts[0]) == 1:
        return parts
    evens = [one[0::2] for one in parts]
    seconds = _scanned(combine, combine(evens, [one[1::2] for one in parts]))
    # What comes before each even element; the first has nothing, and is put back below.
    before = [np.concatenate((one[:1], one[:-1])) for one in seconds]
    found = []
    for part, second, first in zip(parts, seconds, combine(before, evens), strict=True):
        place = np.empty_like(part)
        place[0::2], place[1::2] = first, second
        place[0] = part[0]
        found.append(place)
    return found


def _combiner(operation: Any, dtypes: Sequence[tl.dtype]) -> Callable[[Parts, Parts], Parts]:
    def combine(first: Parts, second: Parts) -> Parts:
        # A shape of one axis with one element would be a number, for which Python's `if` works.
        blocks = [
            operation.to_tensor(part, dtype)
            for parts in (first, second)
            for part, dtype in zip(parts, dtypes, strict=True)
        ]
        with _no_decisions():
            found = operation.combine_fn(*blocks)
        found = found if isinstance(found, tuple) else (found,)
        return [
            np.broadcast_to(_data(one), part.shape).astype(part.dtype)
            for one, part in zip(found, first, strict=True)
        ]

    return combine


def _data(value: Any) -> Any:
    return value.handle.data if isinstance(value, tl.tensor) else getattr(value, "value", value)


@contextlib.contextmanager
def _no_decisions() -> Iterator[None]:
    """Refuse to take a block for true or false: the interpreter takes one of many elements for true."""
    plain = tl.tensor.__bool__

    def refused(_: tl.tensor) -> bool:
        raise _NeedsNumbersError

    tl.tensor.__bool__ = refused
    try:
        yield
    except InterpreterError as error:
        link: BaseException | None = error
        while isinstance(link, InterpreterError):
            link = link.__cause__
        if isinstance(link, _NeedsNumbersError):
            raise link from None
        raise
    finally:
        tl.tensor.__bool__ = plain


def _as_values(operation: Any, found: Sequence[np.ndarray], values: Sequence[tl.tensor]) -> list[tl.tensor]:
    return [operation.to_tensor(one, value.dtype) for one, value in zip(found, values, strict=True)]
