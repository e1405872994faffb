"""A constexpr_function takes constants alone, as the compiler demands.

Triton's interpreter would run the function's Python on the data of a tensor. Seen in Triton 3.6 to 3.9.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator

import triton.language as tl
from triton.runtime import jit
from triton.runtime.jit import JITCallable

CONSTANTS = (bool, int, float, str, type(None), enum.Enum, tl.dtype)  # of what a constexpr_function computes


def give_constants_only_to_constexpr_functions() -> None:
    """Refuse a tensor as an argument of a constexpr_function, as the compiler does.

    The interpreter would run the function's Python on the data of the tensor.
    """
    kind = getattr(jit, "ConstexprFunction", None)
    if kind is None:
        return
    call = kind.__call__

    def checked(function: JITCallable, *args: object, **named: object) -> object:
        given = (value for name, value in named.items() if name != "_semantic")
        for value in _parts((*args, *given)):
            if not isinstance(value, CONSTANTS):
                name = getattr(function.fn, "__name__", "a constexpr_function")
                raise TypeError(f"{name} takes constants, not a {type(value).__name__}")
        return call(function, *args, **named)

    kind.__call__ = checked


def _parts(values: Iterable[object]) -> Iterator[object]:
    for value in values:
        if isinstance(value, tuple | list | set | frozenset | tl.tuple):
            yield from _parts(value)
        elif isinstance(value, tl.constexpr):
            yield from _parts((value.value,))
        else:
            yield value
