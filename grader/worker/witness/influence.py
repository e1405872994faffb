"""Follow a part of an input to one element of an output: on which way it gets there, and where it is joined.

Each number is computed twice, as it is and with other numbers in that part; where both differ the part has an
influence. The method is that of taint tracking (Clause, Li and Orso, Dytan: A Generic Dynamic Taint Analysis
Framework, 2007), by values, so that what is multiplied by 0 has none.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from triton.runtime import interpreter
from triton.runtime.interpreter import ReduceOps

from grader.worker.witness.births import MOVES
from grader.worker.witness.record import Followed, Influence, Witnessed

OTHER, LINES, WAY, DATA = "other", "lines", "way", "data"  # attributes of a value
FACTOR, TERM = 1.5, 1.0  # x becomes 1.5 x + 1 in the part that is followed
MOST_KEPT = 1 << 16  # elements of memory that differ

Array = NDArray[Any]


class _Kept(NamedTuple):
    """An element of the file's own memory that differs: its other number, and the line that stored it."""

    other: float
    line: int
    way: Influence


class Influences:
    """Follows one part to one element, in the programs of one call."""

    def __init__(self, files: Collection[str], lent: range, followed: Followed):
        self._files, self._lent, self._followed = files, lent, followed
        self._memory: dict[int, _Kept] = {}
        self._told: Influence | None = None
        self._lowest: dict[int, int] = {}  # address in the file's own memory, by the line that stores there

    def found(self) -> Witnessed:
        """Return the way on which the part got into the element, if it did."""
        told, place = self._told, self._followed.place * self._followed.size
        if told is None:  # a result of the file's own, which is what was stored last
            ends = [self._memory.get(low + place) for low in reversed(self._lowest.values())]
            told = next((one.way for one in ends if one is not None), None)
        return Witnessed(influence=told)

    def loaded(self, value: Any, pointers: Any, mask: Array) -> None:
        """Give what is loaded its other numbers."""
        if value.data.dtype.kind != "f":
            return
        value.attr[DATA] = True
        addresses, active = pointers.data, np.broadcast_to(mask, pointers.data.shape)
        inside = active & self._is_followed(addresses)
        if inside.any():
            other = np.where(inside, value.data * FACTOR + TERM, value.data).astype(value.data.dtype)
            self._give(value, other, np.zeros(value.data.shape, np.int64), None)
        elif self._memory and int(addresses.flat[0]) not in self._lent:
            kept = [self._memory.get(one) for one in addresses.ravel().tolist()]
            first = next((one for one, runs in zip(kept, active.ravel(), strict=True) if one and runs), None)
            if first is not None:
                flat = [one.other if one else own for one, own in zip(kept, value.data.ravel(), strict=True)]
                other = np.where(active, np.reshape(flat, value.data.shape), value.data)
                way = self._line(), first.line
                self._give(value, other.astype(value.data.dtype), np.zeros(other.shape, np.int64), way)

    def stored(self, pointers: Any, value: Any, mask: Array) -> None:
        """Keep the other numbers of what is stored; tell of the way if it is the element."""
        addresses, is_lent = pointers.data, int(pointers.data.flat[0]) in self._lent
        active = addresses[np.broadcast_to(mask, addresses.shape)]
        if not is_lent and active.size:
            line, low = self._line(), int(active.min())
            self._lowest[line] = min(low, self._lowest.pop(line, low))  # the last one comes last
        if value.data.dtype.kind != "f" or OTHER not in value.attr:
            return
        differs = np.broadcast_to(_differs(value), addresses.shape)
        differs = differs & np.broadcast_to(mask, addresses.shape)
        if not differs.any():
            return
        lines, others = (np.broadcast_to(value.attr[name], addresses.shape) for name in (LINES, OTHER))
        way = value.attr.get(WAY) or (0, 0)
        if is_lent:
            at = differs & (addresses == self._lent.start + self._followed.target)
            if at.any() and self._told is None:
                self._told = Influence(int(lines[at][0]), *way)
        elif len(self._memory) < MOST_KEPT:
            stored, changed = self._line(), [one[differs].tolist() for one in (addresses, others, lines)]
            for address, other, line in zip(*changed, strict=True):
                self._memory[address] = _Kept(other, stored, Influence(line, *way))

    def computed(self, value: Any, op: Callable[..., Any], *operands: Any) -> None:
        """Do an operation on the other numbers of its operands, and note where they meet what is the same."""
        if any(one.attr.get(DATA) for one in operands):
            value.attr[DATA] = True
        if not any(OTHER in one.attr for one in operands):
            return
        with np.errstate(all="ignore"):
            other = np.asarray(op(*(one.attr.get(OTHER, one.data) for one in operands)))
        if other.size != value.data.size:
            return
        shape = value.data.shape
        given = [np.broadcast_to(_differs(one), shape) if _fits(one, shape) else None for one in operands]
        lines = np.zeros(shape, np.int64)
        for one, differs in zip(operands, given, strict=True):
            if differs is not None and LINES in one.attr:
                lines = np.maximum(lines, np.where(differs, np.broadcast_to(one.attr[LINES], shape), 0))
        for at, differs in enumerate(given):
            meets = any(_is_data(one) for k, one in enumerate(operands) if k != at)
            if differs is None or not meets:
                continue
            same = [~one for k, one in enumerate(given) if k != at and one is not None]
            joined = np.logical_and.reduce([differs, *same]) & (lines == 0)
            if joined.any():
                lines = np.where(joined, self._line(), lines)
        ways = [one.attr[WAY] for one in operands if one.attr.get(WAY)]
        self._give(value, other.reshape(shape), lines, ways[-1] if ways else None)

    def joined(self, value: Any, other: Any, *operands: Any) -> None:
        """Give the result of a sum, or of a product of matrices, its other numbers."""
        if any(one.attr.get(DATA) for one in operands):
            value.attr[DATA] = True
        if not any(OTHER in one.attr for one in operands):
            return
        lines = max(int(np.max(one.attr[LINES], initial=0)) for one in operands if LINES in one.attr)
        ways = [one.attr[WAY] for one in operands if one.attr.get(WAY)]
        whole = np.full(value.data.shape, lines or self._line(), np.int64)
        self._give(value, np.asarray(other).reshape(value.data.shape), whole, ways[-1] if ways else None)

    def moved(self, value: Any, change: Callable[[Any], Any], source: Any) -> None:
        """Lay the other numbers of a value out as the value was."""
        if source.attr.get(DATA):
            value.attr[DATA] = True
        if OTHER in source.attr:
            lines = np.broadcast_to(change(source.attr[LINES]), value.data.shape)
            other = np.broadcast_to(change(source.attr[OTHER]), value.data.shape)
            self._give(value, other, lines, source.attr.get(WAY))

    @staticmethod
    def _give(value: Any, other: Array, lines: Array, way: tuple[int, int] | None) -> None:
        value.attr[OTHER], value.attr[LINES] = other, lines
        if way:
            value.attr[WAY] = way

    def _is_followed(self, addresses: Array) -> Array:
        """Return which addresses are of the part."""
        one = self._followed
        rest = (addresses.astype(np.int64) - (self._lent.start + one.offset)) // one.size
        inside = rest >= 0
        for axis in sorted(range(len(one.shape)), key=lambda axis: -one.strides[axis]):
            step = max(1, one.strides[axis])
            place, rest = rest // step, rest % step
            inside = inside & (place < one.shape[axis])
            if axis == one.axis:
                inside = inside & (one.start <= place) & (place < one.stop)
        return inside & (rest == 0)

    def _line(self) -> int:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename not in self._files:
            frame = frame.f_back
        return frame.f_lineno if frame else 0


def _differs(value: Any) -> Array:
    """Return where the other numbers of a value are others."""
    other = value.attr.get(OTHER)
    return np.zeros(value.data.shape, bool) if other is None else np.asarray(other != value.data)


def _is_data(value: Any) -> bool:
    """Return whether a value is made of what was loaded, or as good as that: it has different numbers."""
    numbers = value.data
    return bool(value.attr.get(DATA)) or (
        numbers.dtype.kind == "f" and bool((numbers != numbers.flat[0]).any())
    )


def _fits(value: Any, shape: tuple[int, ...]) -> bool:
    return value.data.size == 1 or value.data.shape == shape


@contextlib.contextmanager
def followed(files: Collection[str], lent: range, part: Followed) -> Iterator[Callable[[], Witnessed]]:
    """Yield a function that returns how a part of an input got into an element; lines are those of `files`.

    `lent` are the addresses of the memory that the judge lends.
    """
    seen = Influences(files, lent, part)
    builder = type(interpreter.interpreter_builder)
    names = ("binary_op", "unary_op", "ternary_op", "cast_impl", "create_fma", "create_rsqrt", "create_dot",
             "create_masked_load", "create_masked_store", *MOVES)  # fmt: skip
    kept = {name: getattr(builder, name) for name in names}
    summed, extreme = ReduceOps.sum, ReduceOps.min_max

    def binary(self: object, lhs: Any, rhs: Any, op: Any) -> Any:
        value = kept["binary_op"](self, lhs, rhs, op)
        seen.computed(value, op, lhs, rhs)
        return value

    def unary(self: object, arg: Any, op: Any) -> Any:
        value = kept["unary_op"](self, arg, op)
        seen.computed(value, op, arg)
        return value

    def chosen(self: object, lhs: Any, rhs: Any, other: Any, op: Any) -> Any:
        value = kept["ternary_op"](self, lhs, rhs, other, op)
        seen.computed(value, op, lhs, rhs, other)
        return value

    def cast(self: object, src: Any, dst_type: Any) -> Any:
        value = kept["cast_impl"](self, src, dst_type)
        if value.data.dtype.kind == "f":
            seen.computed(value, lambda one: one.astype(value.data.dtype), src)
        return value

    def fma(self: object, x: Any, y: Any, z: Any) -> Any:
        value = kept["create_fma"](self, x, y, z)
        seen.computed(value, lambda a, b, c: a * b + c, x, y, z)
        return value

    def rsqrt(self: object, arg: Any) -> Any:
        value = kept["create_rsqrt"](self, arg)
        seen.computed(value, lambda one: 1.0 / np.sqrt(one), arg)
        return value

    def dot(self: object, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        value = kept["create_dot"](self, a, b, d, *rest)
        if any(OTHER in one.attr for one in (a, b, d)):
            left, right, start = (one.attr.get(OTHER, one.data) for one in (a, b, d))
            other = np.matmul(left, right, dtype=start.dtype) + start
            # Where only rounding differs nothing is followed.
            near = np.isclose(other, value.data, rtol=1e-3)
            seen.joined(value, np.where(near, value.data, other), a, b, d)
        return value

    def load(self: object, ptrs: Any, mask: Any, other: Any, *rest: Any, **named: Any) -> Any:
        value = kept["create_masked_load"](self, ptrs, mask, other, *rest, **named)
        seen.loaded(value, ptrs, _lanes(mask))
        return value

    def store(self: object, ptrs: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        seen.stored(ptrs, value, _lanes(mask))
        return kept["create_masked_store"](self, ptrs, value, mask, *rest, **named)

    def moving(name: str) -> Callable[..., Any]:
        def move(self: object, arg: Any, *rest: Any) -> Any:
            value = kept[name](self, arg, *rest)
            seen.moved(value, lambda one: MOVES[name](one, *rest), arg)
            return value

        return move

    def splat(self: object, ret_ty: Any, arg: Any) -> Any:
        value = kept["create_splat"](self, ret_ty, arg)
        seen.moved(value, lambda one: np.broadcast_to(one.reshape(-1)[0], value.data.shape), arg)
        return value

    def total(self: Any, values: Any) -> Any:
        value = summed(self, values)
        given = values.handle
        other = np.sum(given.attr.get(OTHER, given.data), axis=self.axis, keepdims=self.keep_dims)
        seen.joined(value.handle, other, given)
        return value

    def largest(self: Any, values: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:
        value = extreme(self, values, val_reduce_op, idx_reduce_op)
        if idx_reduce_op is None and not isinstance(values, tuple):
            given = values.handle
            other = val_reduce_op(given.attr.get(OTHER, given.data), axis=self.axis, keepdims=self.keep_dims)
            seen.joined(value.handle, other, given)
        return value

    changes = {
        "binary_op": binary, "unary_op": unary, "ternary_op": chosen, "cast_impl": cast, "create_fma": fma,
        "create_rsqrt": rsqrt, "create_dot": dot, "create_masked_load": load, "create_masked_store": store,
        **{name: splat if name == "create_splat" else moving(name) for name in MOVES},
    }  # fmt: skip
    for name, method in changes.items():
        setattr(builder, name, method)
    ReduceOps.sum, ReduceOps.min_max = total, largest
    try:
        yield seen.found
    finally:
        for name, method in kept.items():
            setattr(builder, name, method)
        ReduceOps.sum, ReduceOps.min_max = summed, extreme


def _lanes(mask: Any) -> Array:
    """Return a mask as an array; block pointers pass one."""
    return np.asarray(mask if isinstance(mask, np.ndarray) else mask.data).astype(bool, copy=False)
