"""Caches for work that Triton's interpreter repeats for every kernel and for every value in one."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Sequence

import triton.language as tl
from triton.runtime import interpreter, jit
from triton.runtime.jit import JITCallable

CONSTANTS = (bool, int, float, str, type(None), enum.Enum, tl.dtype)  # of what a constexpr_function computes
OF_A_VALUE = {"handle", "shape", "numel", "type", "dtype"}
OF_A_BLOCK = {"element_ty", "shape", "numel", "name"}


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


def remember_types() -> None:
    """Compute what follows from a shape once, not for every value: that took much of a kernel's time.

    A Triton release whose values have other attributes is not changed.
    """
    one, block = tl.tensor(None, tl.int32), tl.block_type(tl.int32, [2])
    if set(vars(one)) != OF_A_VALUE or set(vars(block)) != OF_A_BLOCK:
        return
    _share_what_a_shape_gives_a_value()
    _share_what_a_shape_gives_a_type()
    if hasattr(interpreter, "_get_np_dtype"):
        interpreter._get_np_dtype = _by_name(interpreter._get_np_dtype)


def _share_what_a_shape_gives_a_value() -> None:
    plain = tl.tensor.__init__
    known: dict[tuple[object, ...], tuple[object, object]] = {}

    def begin(self: tl.tensor, handle: object, type: tl.core.dtype) -> None:  # noqa: A002 - its name is Triton's
        shape = tuple(type.shape) if type.is_block() else ()
        if shape in known:
            self.handle, self.type, self.dtype = handle, type, type.scalar
            self.numel, self.shape = known[shape]
        else:
            plain(self, handle, type)
            known[shape] = self.numel, self.shape

    tl.tensor.__init__ = begin


def _share_what_a_shape_gives_a_type() -> None:
    plain = tl.block_type.__init__
    known: dict[tuple[object, ...], tuple[object, object, object]] = {}

    def begin(self: tl.block_type, element_ty: tl.core.dtype, shape: Sequence[object]) -> None:
        # Only a shape taken from another value: a shape written in the kernel must still be checked.
        key = (element_ty.name, *shape) if isinstance(shape, tl.core.tuple) else None
        if key in known:
            self.element_ty = element_ty
            self.shape, self.numel, self.name = known[key]
        else:
            plain(self, element_ty, shape)
            if key:
                known[key] = self.shape, self.numel, self.name

    tl.block_type.__init__ = begin


def leave_out_the_check_for_overflow() -> None:
    """Switch off the interpreter's check for overflow.

    It repeats every integer sum and product in 64 bits, and reports an overflow only with the option `debug`,
    which no launch can turn on.
    """
    builder = getattr(interpreter, "interpreter_builder", None)
    options = getattr(builder, "options", None)
    if builder is None or options is None:
        return
    if getattr(options, "sanitize_overflow", False) and not getattr(options, "debug", True):
        builder.options = dataclasses.replace(options, sanitize_overflow=False)


def _by_name(plain: Callable[[tl.core.dtype], object]) -> Callable[[tl.core.dtype], object]:
    """Cache a function of a Triton type, which builds a table of all types at every call."""
    known: dict[str, object] = {}

    def dtype_of(kind: tl.core.dtype) -> object:
        if kind.name not in known:
            known[kind.name] = plain(kind)
        return known[kind.name]

    return dtype_of
