"""What a function returned: described for the judge, and copied to lent memory where no output was passed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from grader.worker.messages import Returned
from grader.worker.shared_memory import TORCH_DTYPES

NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}


def delivering(function: Callable[..., object], places: Mapping[str, torch.Tensor]) -> Callable[..., object]:
    """Return a function that calls another and copies what it returns to `places`, in their order.

    A value that does not fit is not copied, and its place keeps what was there.
    """

    def deliver(*inputs: torch.Tensor, **numbers: object) -> object:
        value = function(*inputs, **numbers)
        for place, one in zip(places.values(), _values(value), strict=False):
            if isinstance(one, torch.Tensor) and (one.shape, one.dtype) == (place.shape, place.dtype):
                place.copy_(one)
        return value

    return deliver


def described(value: object, outputs: Mapping[str, torch.Tensor]) -> tuple[Returned, ...]:
    """Describe a returned value, or the values of a tuple or list; `outputs` are those that were passed."""
    values = _values(value)
    if isinstance(value, tuple | list) and len(values) == 1:  # no function is asked for a tuple of one
        return (Returned(type(value).__name__),)
    return tuple(_described(one, outputs) for one in values)


def _values(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _described(value: object, outputs: Mapping[str, torch.Tensor]) -> Returned:
    if not isinstance(value, torch.Tensor):
        return Returned(type(value).__name__)
    dtype = NAMES.get(value.dtype, str(value.dtype))
    same = next((name for name, output in outputs.items() if _is_same(value, output)), "")
    shape, strides = tuple(value.shape), tuple(value.stride())
    return Returned("Tensor", shape, dtype, value.is_contiguous(), same, strides)


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors are the same elements of the same memory, also if they are empty."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.numel():  # their address is 0
        return _place(one) == _place(other)
    steps = [(size, stride) for size, stride in zip(one.shape, one.stride(), strict=True) if size > 1]
    others = [(size, stride) for size, stride in zip(other.shape, other.stride(), strict=True) if size > 1]
    return one.data_ptr() == other.data_ptr() and steps == others


def _place(one: torch.Tensor) -> tuple[int, int]:
    """Return the memory that a tensor is in, by a number, and where it begins there."""
    return one.untyped_storage()._cdata, int(one.storage_offset())
