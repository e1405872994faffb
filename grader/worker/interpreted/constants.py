"""A constexpr computes with a block.

In Triton's interpreter, 3.6 to 3.9, `constexpr - block` is a constexpr that holds a block, which no function
takes. The compiler lets the block compute.
"""

from __future__ import annotations

from collections.abc import Callable

import triton.language as tl

OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift", "pow")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def let_blocks_compute_with_constants() -> None:
    """Hand an operator of a constexpr and a block to the block."""
    names = [f"__{name}__" for name in (*OPERATORS, *COMPARISONS)]
    for name in (*names, *(f"__r{operator}__" for operator in OPERATORS)):
        if name in vars(tl.constexpr):
            setattr(tl.constexpr, name, _unless_a_block(getattr(tl.constexpr, name)))


def _unless_a_block(plain: Callable[[object, object], object]) -> Callable[[object, object], object]:
    def computed(self: object, other: object) -> object:
        return NotImplemented if isinstance(other, tl.tensor) else plain(self, other)

    return computed
