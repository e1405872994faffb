"""Record which kernels a call launches, and how many products of tl.dot they compute.

It runs in the worker, like all audits there: it finds what a file shows to the compiler only, and the static
screen keeps a file from changing it.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from grader.codegen.identity import identity
from grader.codegen.ptx import multiplies_in_a_loop

MAX_KERNELS = 64  # that are reported

_multiplies_in_a_loop = functools.lru_cache(maxsize=256)(multiplies_in_a_loop)


@contextlib.contextmanager
def recorded(interpreted: bool = False) -> Iterator[Callable[[], dict[str, int]]]:
    """Yield a function that returns the launches so far: for each kernel's identity its work of tl.dot.

    In the interpreter that is the number of multiplications. A GPU counts none: there it is the number of
    launches of a kernel that has tensor-core instructions in a loop. JITFunction, which a file can look at,
    stays as it is where kernels are `interpreted`.
    """
    work: Counter[str] = Counter()
    running: list[str] = []
    run_interpreted, run_compiled = InterpretedFunction.run, JITFunction.run
    builder = type(interpreter.interpreter_builder)
    dot = builder.create_dot

    def in_the_interpreter(function: InterpretedFunction, *args: object, **options: object) -> object:
        if options.get("warmup"):
            return run_interpreted(function, *args, **options)
        running.append(identity(function.fn))
        work[running[-1]] += 0
        try:
            return run_interpreted(function, *args, **options)
        finally:
            running.pop()

    def compiled(function: JITFunction, *args: object, **options: object) -> object:
        kernel = run_compiled(function, *args, **options)
        if kernel is not None and not options.get("warmup"):
            work[identity(function.fn)] += _multiplies_in_a_loop(kernel.asm.get("ptx", ""))
        return kernel

    def counted(
        self: object, a: interpreter.TensorHandle, b: interpreter.TensorHandle, *rest: object
    ) -> object:
        if running:
            work[running[-1]] += int(a.data.size) * int(b.data.shape[-1])
        return dot(self, a, b, *rest)

    InterpretedFunction.run, builder.create_dot = in_the_interpreter, counted
    if not interpreted:
        JITFunction.run = compiled
    try:
        yield lambda: dict(work.most_common(MAX_KERNELS))
    finally:
        InterpretedFunction.run, JITFunction.run = run_interpreted, run_compiled
        builder.create_dot = dot


@contextlib.contextmanager
def products_idle() -> Iterator[None]:
    """Let tl.dot add nothing to its accumulator meanwhile, in the interpreter."""
    builder = type(interpreter.interpreter_builder)
    dot = builder.create_dot
    builder.create_dot = _accumulator
    try:
        yield
    finally:
        builder.create_dot = dot


def _accumulator(*given: Any) -> interpreter.TensorHandle:
    _, _, _, accumulator, *_ = given
    return accumulator
