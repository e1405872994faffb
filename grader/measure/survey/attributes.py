"""Query NVML and the CUDA driver for attributes of the GPU: units, memories, clocks, limits."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from grader.measure.survey.record import Attributes
from grader.system.gpu import Gpu, handle

# Values of the enum CUdevice_attribute in cuda.h; they are the same in all versions of CUDA.
CUDA_ATTRIBUTES = {
    "WARP_SIZE": 10,
    "CLOCK_RATE": 13,
    "MULTIPROCESSOR_COUNT": 16,
    "ECC_ENABLED": 32,
    "MEMORY_CLOCK_RATE": 36,
    "GLOBAL_MEMORY_BUS_WIDTH": 37,
    "L2_CACHE_SIZE": 38,
    "MAX_THREADS_PER_MULTIPROCESSOR": 39,
    "ASYNC_ENGINE_COUNT": 40,
    "COMPUTE_CAPABILITY_MAJOR": 75,
    "COMPUTE_CAPABILITY_MINOR": 76,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 81,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 82,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 97,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 106,
}


def find(gpu: Gpu) -> Attributes:
    """Return the attributes of CUDA's GPU; OSError or RuntimeError if its driver does not answer."""
    return join(gpu, ask_cuda(), ask_nvml())


def join(gpu: Gpu, cuda: dict[str, int | None], nvml: dict[str, int | float | bool | None]) -> Attributes:
    """Join the answers of CUDA and NVML; clocks come from NVML if it knows them, as in every other report."""
    kilohertz = cuda["MEMORY_CLOCK_RATE"] or 0
    ecc = nvml.get("ecc")
    if ecc is None and cuda["ECC_ENABLED"] is not None:
        ecc = bool(cuda["ECC_ENABLED"])
    return Attributes(
        capability=10 * cuda["COMPUTE_CAPABILITY_MAJOR"] + cuda["COMPUTE_CAPABILITY_MINOR"],
        multiprocessors=cuda["MULTIPROCESSOR_COUNT"],
        l2_bytes=cuda["L2_CACHE_SIZE"] or 0,
        memory_bus_bits=nvml.get("memory_bus_bits") or cuda["GLOBAL_MEMORY_BUS_WIDTH"] or 0,
        memory_mhz=nvml.get("memory_mhz") or kilohertz // 1000,
        sm_mhz=gpu.max_sm_mhz or (cuda["CLOCK_RATE"] or 0) // 1000,
        warp_size=cuda["WARP_SIZE"],
        threads_per_multiprocessor=cuda["MAX_THREADS_PER_MULTIPROCESSOR"],
        blocks_per_multiprocessor=cuda["MAX_BLOCKS_PER_MULTIPROCESSOR"],
        registers_per_multiprocessor=cuda["MAX_REGISTERS_PER_MULTIPROCESSOR"],
        shared_bytes_per_multiprocessor=cuda["MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"],
        shared_bytes_per_block=cuda["MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"],
        async_engines=cuda["ASYNC_ENGINE_COUNT"],
        ecc=ecc,
        power_limit_watts=nvml.get("power_limit_watts") or None,
        pcie_generation=nvml.get("pcie_generation"),
        pcie_width=nvml.get("pcie_width"),
    )


def ask_cuda() -> dict[str, int | None]:
    """Return the attributes of CUDA's first visible device; None for one that the driver does not know."""
    driver = ctypes.CDLL("libcuda.so.1")
    device = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        raise RuntimeError("the CUDA driver finds no GPU: `make doctor` says why")

    def ask(number: int) -> int | None:
        value = ctypes.c_int()
        failed = driver.cuDeviceGetAttribute(ctypes.byref(value), number, device)
        return None if failed else value.value

    return {name: ask(number) for name, number in CUDA_ATTRIBUTES.items()}


def ask_nvml() -> dict[str, int | float | bool | None]:
    """Return the attributes that only NVML knows; None for what it does not report for this GPU."""
    import pynvml

    device = handle()

    def ask(question: Callable, *arguments):
        try:
            return question(device, *arguments)
        except pynvml.NVMLError:
            return None

    limit = ask(pynvml.nvmlDeviceGetEnforcedPowerLimit)
    ecc = ask(pynvml.nvmlDeviceGetEccMode)
    return {
        "memory_bus_bits": ask(pynvml.nvmlDeviceGetMemoryBusWidth),
        "memory_mhz": ask(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_MEM),
        "power_limit_watts": None if limit is None else limit / 1000,
        "ecc": None if ecc is None else bool(ecc[0]),
        "pcie_generation": ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
        "pcie_width": ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth),
    }
