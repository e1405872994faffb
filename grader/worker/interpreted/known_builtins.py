"""The builtins of Triton's modules are listed once.

Triton's interpreter lists them at every launch, which takes a fifth of the time of short kernels. Seen in
Triton 3.6 to 3.9.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable

import triton.language as tl
from triton.runtime import interpreter


def remember_builtins() -> None:
    """Cache the builtins of Triton's modules: listing them took a fifth of the time of short kernels.

    Other modules that the interpreter lists, and Triton releases that list differently, are not changed.
    """
    if getattr(interpreter, "inspect", None) is not inspect:
        return
    places = (tl, tl.core, tl.math, tl.tensor, getattr(tl.core, "tensor_descriptor_base", tl.tensor))
    known = {place: _builtins(place) for place in places}
    knowing = types.ModuleType("inspect")

    def getmembers(
        place: object, predicate: Callable[[object], bool] | None = None
    ) -> list[tuple[str, object]]:
        if predicate or not isinstance(place, type | types.ModuleType) or place not in known:
            return inspect.getmembers(place, predicate)
        # Without those that are already replaced, as in a function that a kernel calls.
        return [(name, member) for name, member in known[place] if getattr(place, name, None) is member]

    vars(knowing).update(vars(inspect), getmembers=getmembers)
    interpreter.inspect = knowing


def _builtins(place: object) -> list[tuple[str, object]]:
    return [(name, member) for name, member in inspect.getmembers(place) if tl.core.is_builtin(member)]
