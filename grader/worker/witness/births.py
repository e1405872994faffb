"""Find where the first NaN or inf that a kernel stores was born, or where what it stores lost its digits.

Every operation on floats is looked at, so this is for one more run of a case whose result is not finite.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from triton.runtime import interpreter
from triton.runtime.interpreter import ReduceOps

from grader.worker.libdevice_functions import function_of
from grader.worker.witness.losses import Losses, exact_of, give, rounded_once
from grader.worker.witness.record import Birth, Witnessed

MOST_BIRTHS = 64  # of one program that are kept
# How an operation of NumPy is written in a kernel.
# What only lays numbers out in another way, and the same in NumPy.
MOVES: dict[str, Callable[..., Any]] = {
    "create_splat": np.broadcast_to,
    "create_broadcast": np.broadcast_to,
    "create_reshape": lambda exact, shape, *_: exact.reshape(shape),
    "create_expand_dims": np.expand_dims,
    "create_trans": np.transpose,
}
SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}


class _Born(NamedTuple):
    """An operation whose result is not finite in lanes where its operands were."""

    lanes: NDArray[np.bool_]
    birth: Birth


class Births:
    """The births of the program that runs, until one is stored."""

    def __init__(self, files: Collection[str]):
        self._files = files
        self._program: object = None
        self._born: list[_Born] = []
        self.told: tuple[Birth, ...] = ()
        self.losses = Losses(self.line)

    def found(self) -> Witnessed:
        """Return the births that led to the first stored NaN or inf, or where digits were lost.

        At most an inf, and the NaN from it.
        """
        lost = self.losses.found
        if self.told or lost is None:
            return Witnessed(births=self.told)
        sign = SIGNS.get(lost.operation, lost.operation)
        operands = tuple(f"{one:.7g}" for one in lost.operands)
        program = interpreter.interpreter_builder.grid_idx or (0, 0, 0)
        at = Birth(sign, operands, f"{lost.result:.7g}", lost.line, program, f"{lost.exact:.7g}")
        return Witnessed(births=(at,))

    def computed(self, name: str, result: Any, *operands: Any) -> None:
        """Look at the result of an operation."""
        values = result.data
        if self.told or values.dtype.kind != "f" or np.isfinite(values).all():
            return
        given = [operand.data for operand in operands if operand.data.dtype.kind == "f"]
        known_nan, known_inf = (
            np.logical_or.reduce([np.broadcast_to(is_so(one), values.shape) for one in given])
            if given
            else np.zeros(values.shape, bool)
            for is_so in (np.isnan, np.isinf)
        )
        new = (np.isnan(values) & ~known_nan) | (np.isinf(values) & ~known_inf & ~known_nan)
        self._begin()
        if new.any() and len(self._born) < MOST_BIRTHS:
            at = int(np.argmax(new))
            words = tuple(_number(np.broadcast_to(one.data, values.shape).flat[at]) for one in operands)
            program = interpreter.interpreter_builder.grid_idx
            sign, number = SIGNS.get(name, name), _number(values.flat[at])
            self._born.append(_Born(new, Birth(sign, words, number, self.line(), program)))

    def stored(self, values: Any, mask: Any) -> None:
        """Tell of the births behind the first value that is stored and not finite."""
        data = values.data
        if self.told or data.dtype.kind != "f":
            return
        self._begin()
        lanes = mask if isinstance(mask, np.ndarray) else mask.data
        bad = ~np.isfinite(data) & lanes.astype(bool, copy=False)
        if not bad.any() or not self._born:
            return
        # A lane that is masked out may hold anything.
        same = [one for one in self._born if one.lanes.shape == bad.shape and (one.lanes & bad).any()]
        of = [one.birth for one in same or self._born]
        nan = next((one for one in of if one.result == "nan"), None)
        inf = next((one for one in of if one.result != "nan"), None)
        last = nan if np.isnan(np.broadcast_to(data, bad.shape)[bad]).any() and nan else (inf or nan)
        assert last is not None
        from_inf = inf is not None and last is nan and inf.result in last.operands
        self.told = (inf, last) if from_inf and inf is not None else (last,)

    def _begin(self) -> None:
        program = interpreter.interpreter_builder.grid_idx
        if program != self._program:
            self._program, self._born = program, []

    def line(self) -> int:
        """Return the line of the file that runs."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename not in self._files:
            frame = frame.f_back
        return frame.f_lineno if frame else 0


def _number(value: Any) -> str:
    number = float(value)
    return f"{number:.4g}" if math.isfinite(number) else str(number)


@contextlib.contextmanager
def traced(files: Collection[str]) -> Iterator[Callable[[], Witnessed]]:
    """Yield a function that returns the births behind the first NaN or inf that kernels of `files` stored."""
    births = Births(files)
    builder = type(interpreter.interpreter_builder)
    kept = {name: getattr(builder, name) for name in ("binary_op", "unary_op", "cast_impl", "create_fma")}
    kept |= {name: getattr(builder, name) for name in ("create_rsqrt", "create_dot", "create_masked_store")}
    kept |= {name: getattr(builder, name) for name in ("ternary_op", "create_extern_elementwise", *MOVES)}
    losses, summed, found = births.losses, ReduceOps.sum, ReduceOps.min_max

    def binary(self: object, lhs: Any, rhs: Any, op: Any) -> Any:
        value = kept["binary_op"](self, lhs, rhs, op)
        births.computed(op.__name__, value, lhs, rhs)
        losses.computed(op.__name__, value, op, lhs, rhs)
        return value

    def unary(self: object, arg: Any, op: Any) -> Any:
        value = kept["unary_op"](self, arg, op)
        births.computed(op.__name__, value, arg)
        losses.computed(op.__name__, value, op, arg)
        return value

    def cast(self: object, src: Any, dst_type: Any) -> Any:
        value = kept["cast_impl"](self, src, dst_type)
        births.computed(f"to {dst_type.scalar.name}", value, src)
        losses.cast(f"to {dst_type.scalar.name}", value, src)
        return value

    def fma(self: object, x: Any, y: Any, z: Any) -> Any:
        value = kept["create_fma"](self, x, y, z)
        births.computed("fma", value, x, y, z)
        losses.computed("fma", value, lambda a, b, c: a * b + c, x, y, z)
        return value

    def rsqrt(self: object, arg: Any) -> Any:
        value = kept["create_rsqrt"](self, arg)
        births.computed("rsqrt", value, arg)
        losses.computed("rsqrt", value, lambda a: 1.0 / np.sqrt(a), arg)
        return value

    def dot(self: object, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        value = kept["create_dot"](self, a, b, d, *rest)
        if np.isfinite(a.data).all() and np.isfinite(b.data).all():
            births.computed("dot", value, d)
        return value

    def store(self: object, ptrs: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        births.stored(value, mask)
        losses.stored(value, mask)
        value = rounded_once(value)  # the judge sees whether the result is right without any other rounding
        return kept["create_masked_store"](self, ptrs, value, mask, *rest, **named)

    def chosen(self: object, lhs: Any, rhs: Any, other: Any, op: Any) -> Any:
        value = kept["ternary_op"](self, lhs, rhs, other, op)
        if value.data.dtype.kind == "f":
            give(value, op(lhs.data, exact_of(rhs), exact_of(other)))
        return value

    def of_libdevice(self: object, library: str, path: str, symbol: str, handles: Any, *rest: Any) -> Any:
        value = kept["create_extern_elementwise"](self, library, path, symbol, handles, *rest)
        function, name = function_of(symbol), symbol.removeprefix("__nv_").removesuffix("f")
        births.computed(name, value, *handles)
        if function is not None:
            losses.computed(name, value, lambda *exact: function(np.float64, *exact), *handles)
        return value

    def moving(name: str) -> Callable[..., Any]:
        def move(self: object, arg: Any, *rest: Any) -> Any:
            value = kept[name](self, arg, *rest)
            losses.moved(value, lambda exact: MOVES[name](exact, *rest), arg)
            return value

        return move

    def splat(self: object, ret_ty: Any, arg: Any) -> Any:
        value = kept["create_splat"](self, ret_ty, arg)
        losses.moved(value, lambda exact: np.broadcast_to(exact.reshape(-1)[0], value.data.shape), arg)
        return value

    def total(self: Any, values: Any) -> Any:
        value = summed(self, values)
        give(value.handle, np.sum(exact_of(values.handle), axis=self.axis, keepdims=self.keep_dims))
        return value

    def extreme(self: Any, values: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:
        value = found(self, values, val_reduce_op, idx_reduce_op)
        if idx_reduce_op is None and not isinstance(values, tuple):
            exact = exact_of(values.handle)
            give(value.handle, val_reduce_op(exact, axis=self.axis, keepdims=self.keep_dims))
        return value

    changes = {
        "binary_op": binary, "unary_op": unary, "cast_impl": cast, "create_fma": fma, "create_rsqrt": rsqrt,
        "create_dot": dot, "create_masked_store": store, "ternary_op": chosen,
        "create_extern_elementwise": of_libdevice,
        **{name: splat if name == "create_splat" else moving(name) for name in MOVES},
    }  # fmt: skip
    for name, method in changes.items():
        setattr(builder, name, method)
    ReduceOps.sum, ReduceOps.min_max = total, extreme
    try:
        yield births.found
    finally:
        for name, method in kept.items():
            setattr(builder, name, method)
        ReduceOps.sum, ReduceOps.min_max = summed, found
