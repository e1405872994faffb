"""Watch a kernel in Triton's interpreter: the lines that each program runs, and its memory accesses."""

from __future__ import annotations

import numpy
import torch
import triton.language as tl
from triton.runtime import interpreter


class TooLongError(RuntimeError):
    """A launch has more steps than a page can show."""


class Watcher:
    """Collects the steps of each program of one launch, at most `most` in all."""

    def __init__(self, function, buffers: dict[str, torch.Tensor], most: int | None = None):
        self.programs: list[list[dict]] = []
        self.places: list[tuple[int, ...]] = []  # of each program in the grid
        self._code = function.__code__
        self._buffers = buffers
        self._most, self._lines = most, 0
        self._lent: dict[int, str] = {}  # by the pointer's type, which what is computed from it shares
        self._types: list[object] = []  # kept, so that no other object gets the id of one
        self._known: dict = {}

    def lend(self, name: str, pointer: object) -> None:
        """Note the type of the pointer to a buffer: an address far outside is still told to be of it."""
        self._lent[id(pointer)] = name
        self._types.append(pointer)

    def begin_program(self, place: tuple[int, ...]) -> None:
        """Start a new program; further steps belong to it."""
        self.programs.append([])
        self.places.append(place)
        self._known = {}

    def called(self, frame, _event, _argument):
        """Trace function for sys.settrace, which calls it for each function; only the kernel is traced."""
        code = frame.f_code
        same = (code.co_filename, code.co_name) == (self._code.co_filename, self._code.co_name)
        if not same:
            return None
        self._known = self._values(frame)  # the arguments are not a change
        return self._line

    def accessed(self, kind: str, pointers, mask, values, other: bool) -> None:
        """Add a load or a store to the current line."""
        name, offsets = self._place(pointers)
        there = numpy.ravel(mask if isinstance(mask, numpy.ndarray) else mask.data).astype(bool).tolist()
        buffer = self._buffers[name]
        span = 1 + sum((size - 1) * step for size, step in zip(buffer.shape, buffer.stride(), strict=True))
        self.programs[-1][-1]["accesses"].append(
            {
                "kind": kind,
                "buffer": name,
                "offsets": offsets,
                "mask": there,
                "outside": [on and not 0 <= at < span for at, on in zip(offsets, there, strict=True)],
                "values": _numbers(values.data),
                "other": other,
            }
        )

    def _line(self, frame, event, _argument):
        steps = self.programs[-1]
        now = self._values(frame)
        if steps:
            steps[-1]["changed"] |= {
                name: value for name, value in now.items() if self._known.get(name) != value
            }
        self._known = now
        if event == "line":
            self._lines += 1
            if self._most is not None and self._lines > self._most:
                raise TooLongError("too many lines run at this size for a page")
            steps.append({"line": frame.f_lineno, "accesses": [], "changed": {}})
        return self._line

    def _values(self, frame) -> dict:
        found = {name: self._value(value) for name, value in frame.f_locals.items()}
        return {name: value for name, value in found.items() if value is not None}

    def _value(self, value):
        if isinstance(value, int | float):
            return _number(value)
        if not isinstance(value, tl.tensor):
            return None  # constexpr values and functions never change
        data = value.handle.data
        if value.dtype.scalar.is_ptr():
            name, offsets = self._place(value.handle)
            return {"buffer": name, "offset": offsets if data.size > 1 else offsets[0]}
        return _numbers(data) if value.shape else _number(numpy.ravel(data)[0])

    def _place(self, pointers) -> tuple[str, list[int]]:
        """Return the buffer that pointers belong to, and their offsets from its start in elements."""
        lanes = numpy.ravel(pointers.data).astype(numpy.int64)
        near = {name: abs(int(lanes[0]) - buffer.data_ptr()) for name, buffer in self._buffers.items()}
        name = self._lent.get(id(pointers.dtype)) or min(near, key=near.get)
        buffer = self._buffers[name]
        return name, ((lanes - buffer.data_ptr()) // buffer.element_size()).tolist()


def _number(value):
    """Return a number as a JSON value; infinities and NaN as text."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return value if numpy.isfinite(value) else str(value)
    return value


def _numbers(data) -> list:
    return [_number(value) for value in numpy.ravel(data)]


def watch_builder(watcher: Watcher) -> None:
    """Make the interpreter report its programs and accesses to the watcher."""
    builder, kind = interpreter.interpreter_builder, type(interpreter.interpreter_builder)

    def set_grid_idx(*place):
        watcher.begin_program(place)
        return kind.set_grid_idx(builder, *place)

    def create_masked_load(pointers, mask, other, *more, **named):
        loaded = kind.create_masked_load(builder, pointers, mask, other, *more, **named)
        watcher.accessed("load", pointers, mask, loaded, other is not None)
        return loaded

    def create_masked_store(pointers, value, mask, *more, **named):
        watcher.accessed("store", pointers, mask, value, False)
        return kind.create_masked_store(builder, pointers, value, mask, *more, **named)

    for replaced in (set_grid_idx, create_masked_load, create_masked_store):
        setattr(builder, replaced.__name__, replaced)
