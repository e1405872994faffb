"""Numbers that a launch passes are blocks without a shape in the kernel, and numbers in the grid function.

Triton's interpreter, 3.6 to 3.9, hands a float to the kernel as Python's float, which has no `.to` and does
not decide the dtype of a sum as an argument in fp32 does. Up to 3.8 it does not take a bool. The grid
function gets the kernel's blocks; when compiled it gets what the launch passed.

For an integer that is 1 the compiler makes a kernel of its own, in which the argument is a constant, as a
`tl.constexpr` is: a number without `.to`. It does not for a parameter whose type is written in the kernel, or
that `do_not_specialize` names. The interpreter has a block there, too.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction, TensorHandle
from triton.runtime.jit import KernelParam


def pass_numbers_as_the_compiler_does() -> None:
    """Make floats and bools values of the kernel, fp32 and int1, and integers that are 1 constants; leave the
    grid function what was passed.
    """
    _convert_floats_and_bools()
    _give_what_was_passed()


def _convert_floats_and_bools() -> None:
    plain = interpreter._implicit_cvt

    def converted(value: object) -> object:
        if isinstance(value, bool):
            return tl.tensor(TensorHandle(np.array([value], dtype=np.bool_), tl.int1), tl.int1)
        if isinstance(value, float):
            with np.errstate(over="ignore"):  # infinite in fp32, as on a GPU
                data = np.array([value]).astype(np.float32)
            return tl.tensor(TensorHandle(data, tl.float32), tl.float32)
        if isinstance(value, tuple):
            parts = (one if _is_one(one) else converted(one) for one in value)
            return interpreter._tuple_create(value, parts)
        return plain(value)

    interpreter._implicit_cvt = converted


def _give_what_was_passed() -> None:
    """Give the grid function all that a launch passes, and the kernel each integer that is 1."""
    executor = interpreter.GridExecutor
    launch, rewrite = executor.__call__, InterpretedFunction.rewrite

    def rewritten(self: Any) -> Any:
        function = rewrite(self)
        function.keeps_blocks = _never_constant(self.fn, tuple(self.kwargs.get("do_not_specialize") or ()))
        return function

    def launched(self: Any, *args: object, **options: object) -> object:
        warps = options.get("num_warps")
        if isinstance(warps, int) and (warps < 1 or warps & (warps - 1)):
            raise AssertionError("num_warps must be a power of 2")  # as the compiler says
        known = {name: value for name, value in options.items() if name in self.arg_names}
        passed = inspect.getcallargs(self.fn, *args, **known)
        ones = {name for name, value in passed.items() if _is_one(value)}
        self.constexprs = [*self.constexprs, *(ones - self.fn.keeps_blocks)]
        if callable(self.grid):
            grid = self.grid
            self.grid = lambda _: grid(passed)
        return launch(self, *args, **options)

    InterpretedFunction.rewrite, executor.__call__ = rewritten, launched


def _is_one(value: object) -> bool:
    return type(value) is int and value == 1  # a bool is no integer here


@functools.lru_cache(maxsize=256)  # each call of a function asks
def _never_constant(function: Any, named: tuple[int | str, ...]) -> frozenset[str]:
    """Return the parameters that are blocks whatever is passed; `named` are names and places."""
    kept = set(named)
    parameters = enumerate(inspect.signature(function).parameters.values())
    return frozenset(
        one.name
        for place, one in parameters
        if one.name in kept or place in kept or KernelParam(place, one, False, False).annotation_type
    )
