"""Find where a kernel loses the digits of what it stores: each operation on floats is done in fp64 as well.

A number that was loaded is exact. What follows from it is computed twice, as the kernel does and in fp64; an
operation whose result is far from the exact one, though its operands were near, loses digits. The method is
that of Benz, Hildebrandt and Hack, A Dynamic Program Analysis to Find Floating-Point Accuracy Problems
(2012).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from triton.runtime import interpreter

EXACT = "exact"  # the attribute of a value that has its fp64 twin
LOST = 2e-5  # error, relative to the largest number of a block, from which digits are lost
GROWS = 64.0  # times the error of the operands that the result must have
STORED = 1e-5  # error of what is stored, from which it matters; in 16 bits that of some roundings
ROUNDINGS = 4.0
LEAST = 2.0**-24  # the error that rounding to fp32 leaves
TINY = float(np.finfo(np.float32).tiny)  # a smaller number is no normal one in fp32
# Of one lane by itself, a difference of two numbers that are alike may lose all digits of a small number.
LOST_IN_A_LANE, STORED_IN_A_LANE = 5e-5, 2e-4

Exact = NDArray[np.float64]


class Loss(NamedTuple):
    """An operation that loses digits: its name, one lane of its operands, what it gives and should give."""

    operation: str
    operands: tuple[float, ...]
    result: float
    exact: float
    growth: float
    line: int
    converted: Any = None  # the numbers that it gives, if it is a conversion


class Losses:
    """The losses of the program that runs, until a wrong number is stored."""

    def __init__(self, line_of: Callable[[], int]):
        self._line_of = line_of
        self._program: object = None
        self._seen: list[Loss] = []
        self._in_lanes: list[Loss] = []
        self.told: Loss | None = None
        self._told_of_a_lane: Loss | None = None

    @property
    def found(self) -> Loss | None:
        """The loss that was told of: of a whole block, else of one lane."""
        return self.told or self._told_of_a_lane

    def computed(self, name: str, value: Any, op: Any, *operands: Any) -> None:
        """Compute an operation on its operands once more, and compare."""
        if self.told or value.data.dtype.kind != "f":
            return
        with np.errstate(all="ignore"):
            exact = op(*(exact_of(one) for one in operands))
        self._note(name, value, exact, operands)

    def moved(self, value: Any, change: Callable[[Exact], Any], source: Any) -> None:
        """Lay the exact twin of a value out as the value was."""
        if EXACT in source.attr and not self.told:
            give(value, change(source.attr[EXACT]))

    def cast(self, name: str, value: Any, source: Any) -> None:
        """A conversion to fewer digits loses some."""
        if not self.told and value.data.dtype.kind == source.data.dtype.kind == "f":
            self._note(name, value, exact_of(source), (source,), is_conversion=True)

    def stored(self, value: Any, mask: Any) -> None:
        """Tell of the operation that lost most digits, if what is stored is wrong for that."""
        self._begin()
        if self.told or not (self._seen or self._in_lanes) or value.data.dtype.kind != "f":
            return
        lanes = np.broadcast_to(getattr(mask, "data", mask), value.data.shape).astype(bool, copy=False)
        exact = np.broadcast_to(exact_of(value), value.data.shape)
        least = max(STORED, ROUNDINGS * float(np.finfo(value.data.dtype).eps))
        # What is stored has the digits of its dtype, and is converted to that last.
        seen = [one for one in self._seen if one.converted is not value.data]
        if seen and lanes.any() and _error(value.data[lanes], exact[lanes]) > least:
            self.told = max(seen, key=lambda one: one.growth)
        elif self._in_lanes and lanes.any() and not self._told_of_a_lane:
            least = max(STORED_IN_A_LANE, ROUNDINGS * float(np.finfo(value.data.dtype).eps))
            if float(_errors(value.data[lanes], exact[lanes]).max()) > least:
                self._told_of_a_lane = max(self._in_lanes, key=lambda one: one.growth)

    def _note(
        self, name: str, value: Any, exact: Exact, operands: tuple[Any, ...], is_conversion: bool = False
    ) -> None:
        give(value, exact)
        self._begin()
        error = _error(value.data, value.attr[EXACT])
        if not LOST < error < np.inf:
            if not is_conversion:
                self._note_a_lane(name, value, operands)
            return
        floats = (one for one in operands if one.data.dtype.kind == "f")
        before = max([LEAST, *(_error(one.data, exact_of(one)) for one in floats)])
        if error > GROWS * before:
            with np.errstate(all="ignore"):
                off = np.abs(np.asarray(value.data, np.float64) - value.attr[EXACT])
            at = int(np.argmax(np.where(np.isfinite(off), off, 0.0)))
            given = (float(np.broadcast_to(one.data, value.data.shape).flat[at]) for one in operands)
            found = float(value.data.flat[at]), float(value.attr[EXACT].flat[at])
            line = self._line_of()
            converted = value.data if is_conversion else None
            self._seen.append(Loss(name, tuple(given), *found, error / before, line, converted))

    def _note_a_lane(self, name: str, value: Any, operands: tuple[Any, ...]) -> None:
        exact = value.attr[EXACT]
        errors = _errors(value.data, exact).reshape(-1)
        at = int(np.argmax(errors)) if errors.size else 0
        if not errors.size or errors[at] <= LOST_IN_A_LANE:
            return
        before = LEAST
        for one in operands:
            if one.data.dtype.kind == "f" and one.data.shape in ((), (1,), value.data.shape):
                mine = np.broadcast_to(_errors(one.data, exact_of(one)), value.data.shape)
                before = max(before, float(mine.reshape(-1)[at]))
        if errors[at] > GROWS * before:
            given = tuple(float(np.broadcast_to(one.data, value.data.shape).flat[at]) for one in operands)
            found = float(value.data.flat[at]), float(exact.flat[at])
            growth = float(errors[at]) / before
            self._in_lanes.append(Loss(name, given, *found, growth, self._line_of()))

    def _begin(self) -> None:
        program = interpreter.interpreter_builder.grid_idx
        if program != self._program:
            self._program, self._seen, self._in_lanes = program, [], []


def give(value: Any, exact: Any) -> None:
    """Give a value its fp64 twin, in the same shape."""
    shape = value.data.shape
    twin = np.asarray(exact, np.float64)
    value.attr[EXACT] = twin.reshape(shape) if twin.size == value.data.size else np.broadcast_to(twin, shape)


def rounded_once(value: Any) -> Any:
    """Return a value as its fp64 twin in the same dtype; one that has none as it is."""
    twin = value.attr.get(EXACT)
    if twin is None or value.data.dtype.kind != "f":
        return value
    with np.errstate(over="ignore"):
        return interpreter.TensorHandle(twin.astype(value.data.dtype), value.dtype)


def exact_of(value: Any) -> Exact:
    """Return the fp64 twin of a value; of one that has none, such as a loaded one, its own numbers."""
    twin = value.attr.get(EXACT)
    return value.data.astype(np.float64) if twin is None else twin


def _errors(data: Any, exact: Exact) -> Exact:
    """Return the error of each number, relative to what it should be; 0 where that is tiny or not finite."""
    with np.errstate(all="ignore"):
        off = np.abs(np.asarray(data, np.float64) - exact) / np.abs(exact)
        counts = np.isfinite(off) & (np.abs(exact) >= TINY)
    return np.where(counts, off, 0.0)


def _error(data: Any, exact: Exact) -> float:
    """Return the largest error in a block, relative to its largest number; 0 where that is not finite."""
    with np.errstate(all="ignore"):
        finite = np.isfinite(exact) & np.isfinite(data)
        if not finite.any():
            return 0.0
        most = float(np.abs(exact[finite]).max())
        worst = float(np.abs(np.asarray(data, np.float64)[finite] - exact[finite]).max())
    return worst / most if most > 0.0 else 0.0
