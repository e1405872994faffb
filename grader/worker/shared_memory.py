"""Memory that the judge owns and lends to workers: shared memory on a CPU, CUDA IPC on a GPU."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from grader.course.signatures import Shape
from grader.system import cuda_driver

TORCH_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
PAGE = 2 * 1024 * 1024  # bytes of a large page, on a GPU and on most CPUs
MOST_VIEWS = 4096  # that the judge keeps: to make one takes as long as a small kernel
ALIGN = 256  # bytes; tensor descriptors need 16, cache lines have 128


@dataclass(frozen=True)
class Tensor:
    """The place of a tensor in an arena: byte offset of its first element, shape, strides in elements."""

    offset: int
    shape: Shape
    strides: tuple[int, ...]
    dtype: str

    @property
    def span(self) -> int:
        """Count the elements from first to last, including gaps between rows; 0 for an empty tensor."""
        if 0 in self.shape:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))


@dataclass(frozen=True)
class Buffer:
    """A named tensor in an arena together with the guard bands before and after it."""

    name: str
    tensor: Tensor
    start: int  # first byte of the band before it
    stop: int  # one past the last byte of the band after it
    parts: tuple[Buffer, ...] = ()  # of a tensor whose rows lie far apart: each row, with bands of its own

    @property
    def pieces(self) -> tuple[Buffer, ...]:
        """Return the memory that belongs to the tensor: the buffer itself, or its parts."""
        return self.parts or (self,)


Call: TypeAlias = tuple[Sequence[Buffer], Sequence[Buffer]]  # the inputs and the outputs of one call

F_ADD_SEALS, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW = 1033, 1, 2, 4  # some versions of fcntl lack them


class _IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]


class _DeviceBytes:
    """Raw device memory, in a form that torch.as_tensor takes without a copy."""

    def __init__(self, pointer: int, size: int):
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
        }


class Arena:
    """One block of lent memory. An IPC handle exposes a whole allocation, so that has nothing else in it.

    With `keeps_views` a tensor that was asked for before is the same object: for the judge alone, because
    the code that a worker runs may change the tensor that it is given.
    """

    def __init__(
        self,
        device: str,
        size: int,
        handle: int | bytes,
        raw: mmap.mmap | torch.Tensor,
        keeps_views: bool = False,
    ):
        self.device = device
        self.size = size
        self.handle = handle  # file descriptor on a CPU, 64 bytes on a GPU
        self._raw = raw
        self._most_kept = MOST_VIEWS if keeps_views else 0
        self._kept: dict[Tensor | tuple[int, int], torch.Tensor] = {}

    @classmethod
    def create(cls, device: str, size: int) -> Arena:
        """Create an arena of at least `size` bytes; on a CPU only touched pages take memory."""
        # CUDA maps an allocation that is not a whole number of large pages in small ones, and kernels on it
        # reach half the bandwidth (measured on an H200).
        size = -(-size // PAGE) * PAGE
        if device == "cpu":
            descriptor = os.memfd_create("lent", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(descriptor, size)
            # If a worker could shrink it, the judge would be killed by SIGBUS at its next access.
            fcntl.fcntl(descriptor, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)
            return cls(device, size, descriptor, mmap.mmap(descriptor, size), keeps_views=True)
        torch.cuda.init()
        torch.zeros(1, device="cuda")  # makes torch's context current before the driver is called directly
        pointer = ctypes.c_uint64()
        cuda_driver.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        handle = _IpcHandle()
        cuda_driver.call("cuIpcGetMemHandle", ctypes.byref(handle), pointer)
        raw = torch.as_tensor(_DeviceBytes(pointer.value, size), device="cuda")
        return cls(device, size, ctypes.string_at(ctypes.byref(handle), 64), raw, keeps_views=True)

    @classmethod
    def open(cls, device: str, size: int, handle: int | bytes) -> Arena:
        """Open the same memory in a worker."""
        if isinstance(handle, int):
            return cls(device, size, handle, mmap.mmap(handle, size))
        torch.zeros(1, device="cuda")
        structure = _IpcHandle()
        ctypes.memmove(ctypes.byref(structure), handle, 64)
        pointer = ctypes.c_uint64()
        # The structure is passed by value; 1 is CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, the only flag.
        cuda_driver.call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), structure, ctypes.c_uint(1))
        return cls(device, size, handle, torch.as_tensor(_DeviceBytes(pointer.value, size), device="cuda"))

    def bytes(self, start: int, stop: int) -> torch.Tensor:
        """Return the bytes from `start` up to `stop` as a uint8 tensor."""
        return self._view((start, stop), lambda: self._bytes(start, stop))

    def _bytes(self, start: int, stop: int) -> torch.Tensor:
        if isinstance(self._raw, mmap.mmap):
            # Each view has a storage of its own, because the interpreter copies whole storages.
            return torch.frombuffer(self._raw, dtype=torch.uint8, offset=start, count=stop - start)
        return self._raw[start:stop]

    def _view(self, key: Tensor | tuple[int, int], make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Return a view from those that are kept, or make it."""
        if not self._most_kept:
            return make()
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) == self._most_kept:
                self._kept.clear()
            kept = self._kept[key] = make()
        return kept

    @property
    def addresses(self) -> range:
        """Return where the memory lies in this process."""
        start = self.bytes(0, 1).data_ptr()
        return range(start, start + self.size)

    def view(self, tensor: Tensor) -> torch.Tensor:
        """Return the tensor, on the lent memory."""
        return self._view(tensor, lambda: self._tensor(tensor))

    def _tensor(self, tensor: Tensor) -> torch.Tensor:
        dtype = TORCH_DTYPES[tensor.dtype]
        if tensor.span == 0:
            return torch.empty(tensor.shape, dtype=dtype, device=self.device)
        flat = self._bytes(tensor.offset, tensor.offset + tensor.span * dtype.itemsize).view(dtype)
        return flat.as_strided(tensor.shape, tensor.strides)

    def close(self) -> None:
        """Free the memory; views of it must not be used any more."""
        self._kept.clear()
        if isinstance(self.handle, int):
            os.close(self.handle)
        elif isinstance(self._raw, torch.Tensor):
            cuda_driver.call("cuMemFree_v2", ctypes.c_uint64(self._raw.data_ptr()))
        del self._raw
