"""Launch a kernel with another number of programs than the host code says, to see what that changes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from triton.runtime.interpreter import InterpretedFunction

from grader.worker.messages import Programs

AXES = 3


@contextlib.contextmanager
def other_programs(asked: Programs) -> Iterator[None]:
    """Let one launch of what runs here have another size of its grid along one axis."""
    run, launches = InterpretedFunction.run, 0

    def launched(kernel: InterpretedFunction, *args: object, **options: object) -> object:
        nonlocal launches
        if options.get("warmup"):
            return run(kernel, *args, **options)
        if launches == asked.launch:
            options["grid"] = _resized(options["grid"], asked)
        launches += 1
        return run(kernel, *args, **options)

    InterpretedFunction.run = launched
    try:
        yield
    finally:
        InterpretedFunction.run = run


def _resized(grid: object, asked: Programs) -> Callable[[object], tuple[int, ...]]:
    def sizes(meta: object) -> tuple[int, ...]:
        given: Sequence[int] = grid(meta) if callable(grid) else grid  # type: ignore[assignment]
        found = [*given, *(1,) * (AXES - len(given))]
        found[asked.axis] = asked.size
        return tuple(found)

    return sizes
