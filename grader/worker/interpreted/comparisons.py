"""A comparison gives bits, also where it becomes a block.

In Triton's interpreter, 3.6 to 3.9, the result of a comparison has the type of what was compared. A block of
a single result then holds numbers of that type: `mask & (number > 0.0)` fails, and loads and stores of 3.9
take no mask of integers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle


def give_bits() -> None:
    """Give the results of comparisons the type of a bit."""
    for name, plain in [*vars(InterpreterBuilder).items()]:
        if name.startswith(("create_icmp", "create_fcmp")):
            setattr(InterpreterBuilder, name, _with_bits(plain))


def _with_bits(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def compared(*arguments: Any) -> Any:
        return TensorHandle(plain(*arguments).data.astype(bool, copy=False), tl.int1)

    return compared
