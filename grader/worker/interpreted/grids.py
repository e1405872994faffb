"""Launch a kernel with other programs than the host code says: another number of them, or a single one."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import torch
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction

from grader.worker.messages import OneProgram, Programs

AXES = 3


Run: TypeAlias = Callable[[dict[str, Any]], object]  # of a launch, with its options


@contextlib.contextmanager
def other_programs(asked: Programs) -> Iterator[None]:
    """Let one launch of what runs here have another size of its grid along one axis."""

    def changed(number: int, options: dict[str, Any], run: Run) -> object:
        if number == asked.launch:
            options["grid"] = _resized(options["grid"], asked)
        return run(options)

    with _launches(changed):
        yield


@contextlib.contextmanager
def one_program(asked: OneProgram) -> Iterator[None]:
    """Let one launch of what runs here have one program alone, in a grid of the same size, and be the last.

    No program runs if there is none of its number. Tensors that host code makes are filled with NaN: an
    element that no other call has written is told by that.
    """

    def changed(number: int, options: dict[str, Any], run: Run) -> object:
        if number < asked.launch:
            return run(options)
        return _run_one(options, run, asked.number) if number == asked.launch else None

    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")  # of which torch.utils.deterministic says what it fills
    try:
        with _launches(changed):
            yield
    finally:
        torch.set_deterministic_debug_mode(mode)


@contextlib.contextmanager
def _launches(changed: Callable[[int, dict[str, Any], Run], object]) -> Iterator[None]:
    """Let each launch be run by a function, which gets its number."""
    plain, launches = InterpretedFunction.run, 0

    def launched(kernel: InterpretedFunction, *args: object, **options: Any) -> object:
        nonlocal launches
        if options.get("warmup"):
            return plain(kernel, *args, **options)
        launches += 1
        return changed(launches - 1, options, lambda options: plain(kernel, *args, **options))

    InterpretedFunction.run = launched
    try:
        yield
    finally:
        InterpretedFunction.run = plain


def _sizes(grid: object, meta: object) -> list[int]:
    given: Sequence[int] = grid(meta) if callable(grid) else grid  # type: ignore[assignment]
    return [*given, *(1,) * (AXES - len(given))]


def _resized(grid: object, asked: Programs) -> Callable[[object], tuple[int, ...]]:
    def sizes(meta: object) -> tuple[int, ...]:
        found = _sizes(grid, meta)
        found[asked.axis] = asked.size
        return tuple(found)

    return sizes


def _run_one(options: dict[str, Any], run: Run, number: int) -> object:
    builder, grid = interpreter.interpreter_builder, options["grid"]
    place, dim = builder.set_grid_idx, builder.set_grid_dim
    sizes: list[int] = []

    def grid_of_one(meta: object) -> tuple[int, ...]:
        sizes[:] = _sizes(grid, meta)
        return (int(number < math.prod(sizes)), 1, 1)

    def place_of_it(*_: int) -> None:
        rest, z = divmod(number, sizes[2])
        x, y = divmod(rest, sizes[1])
        place(x, y, z)

    builder.set_grid_idx, builder.set_grid_dim = place_of_it, lambda *_: dim(*sizes)
    try:
        return run({**options, "grid": grid_of_one})
    finally:
        del builder.set_grid_idx, builder.set_grid_dim
