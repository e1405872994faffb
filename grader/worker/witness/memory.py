"""Which memory a kernel may touch: that of the tensors which were passed to it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import torch
from triton.runtime.jit import TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from grader.worker.witness.record import MOST_AXES, Argument


class Region(NamedTuple):
    """The memory of one tensor argument: all of its storage, which views of it may reach, in bytes."""

    start: int
    stop: int
    origin: int  # of the tensor's first element
    size: int  # of an element
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, given: torch.Tensor | TensorWrapper) -> Region:
        """Return the memory of a tensor that is passed to a kernel."""
        tensor = given.base if isinstance(given, TensorWrapper) else given
        storage = tensor.untyped_storage()
        start = storage.data_ptr()
        return cls(
            start,
            start + storage.nbytes(),
            tensor.data_ptr(),
            given.element_size(),
            tuple(tensor.shape)[:MOST_AXES],
            tuple(tensor.stride())[:MOST_AXES],
        )

    def argument(self, name: str) -> Argument:
        """Return the tensor, as a record names it."""
        return Argument(name, self.shape, self.strides)

    def distance(self, address: int) -> int:
        """Return how many bytes an address lies outside, 0 inside."""
        return max(self.start - address, address - self.stop + 1, 0)


def name_of(
    origin: int, kernel: Callable[..., object], args: Iterable[object], options: Mapping[str, object]
) -> str:
    """Return the kernel's parameter that got the tensor which begins at `origin`; "" if none did."""
    names = inspect.getfullargspec(kernel).args
    try:
        bound = inspect.getcallargs(kernel, *args, **{k: v for k, v in options.items() if k in names})
    except TypeError:
        return ""
    for name, value in bound.items():
        if any(one.data_ptr() == origin for one in _tensors(value)):
            return str(name)
    return ""


def _tensors(value: object) -> Iterator[torch.Tensor | TensorWrapper]:
    if isinstance(value, TensorDescriptor):
        yield from _tensors(value.base)
    elif isinstance(value, torch.Tensor | TensorWrapper):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(one)
