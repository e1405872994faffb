"""Find where the first NaN or inf that a kernel stores was born: the line, the operation, the operands.

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

from grader.worker.witness.record import Birth, Witnessed

MOST_BIRTHS = 64  # of one program that are kept
# How an operation of NumPy is written in a kernel.
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

    def found(self) -> Witnessed:
        """Return the births that led to the first stored NaN or inf: at most an inf, and the NaN from it."""
        return Witnessed(births=self.told)

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
            self._born.append(_Born(new, Birth(sign, words, number, self._line(), program)))

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

    def _line(self) -> int:
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

    def binary(self: object, lhs: Any, rhs: Any, op: Any) -> Any:
        value = kept["binary_op"](self, lhs, rhs, op)
        births.computed(op.__name__, value, lhs, rhs)
        return value

    def unary(self: object, arg: Any, op: Any) -> Any:
        value = kept["unary_op"](self, arg, op)
        births.computed(op.__name__, value, arg)
        return value

    def cast(self: object, src: Any, dst_type: Any) -> Any:
        value = kept["cast_impl"](self, src, dst_type)
        births.computed(f"to {dst_type.scalar.name}", value, src)
        return value

    def fma(self: object, x: Any, y: Any, z: Any) -> Any:
        value = kept["create_fma"](self, x, y, z)
        births.computed("fma", value, x, y, z)
        return value

    def rsqrt(self: object, arg: Any) -> Any:
        value = kept["create_rsqrt"](self, arg)
        births.computed("rsqrt", value, arg)
        return value

    def dot(self: object, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        value = kept["create_dot"](self, a, b, d, *rest)
        if np.isfinite(a.data).all() and np.isfinite(b.data).all():
            births.computed("dot", value, d)
        return value

    def store(self: object, ptrs: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        births.stored(value, mask)
        return kept["create_masked_store"](self, ptrs, value, mask, *rest, **named)

    changes = (binary, unary, cast, fma, rsqrt, dot, store)
    for name, method in zip(kept, changes, strict=True):
        setattr(builder, name, method)
    try:
        yield births.found
    finally:
        for name, method in kept.items():
            setattr(builder, name, method)
