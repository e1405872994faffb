"""What follows from a shape or a type is computed once.

Triton's interpreter computes it for every value of a kernel. Seen in Triton 3.6 to 3.9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import triton.language as tl
from triton.runtime import interpreter

OF_A_VALUE = {"handle", "shape", "numel", "type", "dtype"}
OF_A_BLOCK = {"element_ty", "shape", "numel", "name"}


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


def _by_name(plain: Callable[[tl.core.dtype], object]) -> Callable[[tl.core.dtype], object]:
    """Cache a function of a Triton type, which builds a table of all types at every call."""
    known: dict[str, object] = {}

    def dtype_of(kind: tl.core.dtype) -> object:
        if kind.name not in known:
            known[kind.name] = plain(kind)
        return known[kind.name]

    return dtype_of
