"""Launch a kernel with other programs than the host code says: another number of them, or a single one."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction

from grader.worker.messages import OneProgram, Programs

AXES = 3


Run: TypeAlias = Callable[[dict[str, Any]], object]  # of a launch, with its options


class Launch(NamedTuple):
    """A launch of a call, by its number; `tensors` are its arguments that are tensors, in their order."""

    number: int
    kernel: str
    tensors: Sequence[torch.Tensor]
    options: dict[str, Any]
    run: Run


@contextlib.contextmanager
def other_programs(asked: Programs) -> Iterator[None]:
    """Let one launch of what runs here have another size of its grid along one axis."""

    def changed(launch: Launch) -> object:
        if launch.number == asked.launch:
            launch.options["grid"] = _resized(launch.options["grid"], asked)
        return launch.run(launch.options)

    with launches(changed):
        yield


@contextlib.contextmanager
def one_program(asked: OneProgram) -> Iterator[None]:
    """Let one launch of what runs here have one program alone, in a grid of the same size, and be the last.

    No program runs if there is none of its number.
    """

    def changed(launch: Launch) -> object:
        if launch.number < asked.launch:
            return launch.run(launch.options)
        return _run_one(launch, asked.number) if launch.number == asked.launch else None

    with launches(changed):
        yield


@contextlib.contextmanager
def own_tensors_filled() -> Iterator[None]:
    """Fill the tensors that host code makes with NaN: an element that nobody has written is told by that."""
    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")  # of which torch.utils.deterministic says what it fills
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)


@contextlib.contextmanager
def launches(changed: Callable[[Launch], object]) -> Iterator[None]:
    """Let each launch be run by a function."""
    plain, count = InterpretedFunction.run, 0

    def launched(kernel: InterpretedFunction, *args: object, **options: Any) -> object:
        nonlocal count
        if options.get("warmup"):
            return plain(kernel, *args, **options)
        count += 1
        tensors = [one for one in (*args, *options.values()) if isinstance(one, torch.Tensor)]
        run = lambda options: plain(kernel, *args, **options)  # noqa: E731
        return changed(Launch(count - 1, kernel.fn.__name__, tensors, options, run))

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


def _run_one(launch: Launch, number: int) -> object:
    builder, grid = interpreter.interpreter_builder, launch.options["grid"]
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
        return launch.run({**launch.options, "grid": grid_of_one})
    finally:
        del builder.set_grid_idx, builder.set_grid_dim
