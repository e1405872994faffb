"""What answers for a GPU that is not there: Triton's driver, and PyTorch's questions about the device.

Kernels are compiled for it and never run on it. Its memory is the host's: tensors are on the CPU. Sizes are
those of an H100, for which the codegen tier compiles by default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget

WARP_SIZE = 32
THREADS_OF_A_BLOCK = 1024
REGISTERS = 32  # of a thread, for a kernel of which no machine code was made
PROPERTIES = {  # by the names that Triton's driver uses; bytes, kHz and bits
    "max_shared_mem": 232448,
    "max_num_regs": 65536,
    "multiprocessor_count": 132,
    "warpSize": WARP_SIZE,
    "sm_clock_rate": 1980000,
    "mem_clock_rate": 2619000,
    "mem_bus_width": 5120,
}


class DeviceProperties(NamedTuple):
    """What torch.cuda.get_device_properties returns; memory in bytes."""

    major: int
    minor: int
    name: str = "a GPU that is absent"
    multi_processor_count: int = PROPERTIES["multiprocessor_count"]
    total_memory: int = 80 << 30
    L2_cache_size: int = 50 << 20
    warp_size: int = WARP_SIZE
    regs_per_multiprocessor: int = PROPERTIES["max_num_regs"]
    shared_memory_per_block: int = 48 << 10
    shared_memory_per_block_optin: int = PROPERTIES["max_shared_mem"]
    shared_memory_per_multiprocessor: int = PROPERTIES["max_shared_mem"] + 1024
    max_threads_per_multi_processor: int = 2048


class Utilities:
    """The functions of Triton's driver that are written in C."""

    def get_device_properties(self, _device: object = None) -> dict[str, int]:
        """Return the sizes of the GPU."""
        return dict(PROPERTIES)

    def load_binary(self, *_: object) -> tuple[int, int, int, int, int]:
        """Return no module and no function, with registers, spills and the most threads of a block."""
        return 0, 0, REGISTERS, 0, THREADS_OF_A_BLOCK


class AbsentGpu:
    """The driver of a GPU of one architecture, such as 90 for sm_90, that is not there."""

    def __init__(self, arch: int):
        self._target = GPUTarget("cuda", arch, WARP_SIZE)
        self.utils = Utilities()

    def get_current_target(self) -> GPUTarget:
        """Return the target, as the driver of a real GPU does."""
        return self._target

    def get_current_device(self) -> int:
        """Return the number of the only device."""
        return 0

    def get_device_capability(self, _device: object = None) -> tuple[int, int]:
        """Return the architecture as major and minor number."""
        major, minor = divmod(self._target.arch, 10)
        return major, minor

    def get_current_stream(self, _device: object = None) -> int:
        """Return CUDA's default stream."""
        return 0

    def get_active_torch_device(self) -> torch.device:
        """Return where the tensors are that a kernel gets."""
        return torch.device("cpu")

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Return a benchmark for autotuned kernels that calls each config once, and finds all alike."""

        def once(call: Callable[[], object], **_: object) -> list[float]:
            call()
            return [1.0, 1.0, 1.0]

        return once

    def launcher_cls(self, _source: object, _metadata: object) -> Callable[..., None]:
        """Return what launches a compiled kernel: nothing runs."""
        return lambda *_: None


class _NoDevice:
    """`with torch.cuda.device(x.device):` where x is on the CPU; nothing changes."""

    def __init__(self, _device: object):
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def install(arch: int) -> None:
    """Let Triton's driver and torch.cuda answer as for a GPU of architecture `arch`.

    torch.cuda.is_available() stays False: tensors are on the CPU.
    """
    triton.runtime.driver.set_active(AbsentGpu(arch))
    major, minor = divmod(arch, 10)
    answers = {
        "current_device": lambda: 0,
        "get_device_capability": lambda _device=None: (major, minor),
        "get_device_properties": lambda _device=None: DeviceProperties(major, minor),
        "device": _NoDevice,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
