"""Numbers that a launch passes are blocks without a shape in the kernel, and numbers in the grid function.

Triton's interpreter, 3.6 to 3.9, hands a float to the kernel as Python's float, which has no `.to` and does
not decide the dtype of a sum as an argument in fp32 does. Up to 3.8 it does not take a bool. The grid
function gets the kernel's blocks; when compiled it gets what the launch passed.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle


def pass_numbers_as_the_compiler_does() -> None:
    """Make floats and bools values of the kernel, fp32 and int1; leave the grid function what was passed."""
    _convert_floats_and_bools()
    _give_the_grid_what_was_passed()


def _convert_floats_and_bools() -> None:
    plain = interpreter._implicit_cvt

    def converted(value: object) -> object:
        if isinstance(value, bool):
            return tl.tensor(TensorHandle(np.array([value], dtype=np.bool_), tl.int1), tl.int1)
        if isinstance(value, float):
            with np.errstate(over="ignore"):  # infinite in fp32, as on a GPU
                data = np.array([value]).astype(np.float32)
            return tl.tensor(TensorHandle(data, tl.float32), tl.float32)
        return plain(value)

    interpreter._implicit_cvt = converted


def _give_the_grid_what_was_passed() -> None:
    executor = interpreter.GridExecutor
    launch = executor.__call__

    def launched(self: Any, *args: object, **options: object) -> object:
        if callable(self.grid):
            grid = self.grid
            known = {name: value for name, value in options.items() if name in self.arg_names}
            passed = inspect.getcallargs(self.fn, *args, **known)
            self.grid = lambda _: grid(passed)
        return launch(self, *args, **options)

    executor.__call__ = launched
