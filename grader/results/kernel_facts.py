"""Facts about one compiled kernel, as stored in results.json."""

from __future__ import annotations

from grader.results.base import Model


class KernelFacts(Model):
    """One compiled kernel; sizes are in bytes, counts are instructions in the code, not executions."""

    name: str
    constants: dict[str, int | float | str | bool]
    num_warps: int  # 0 for CUDA C++, as is num_stages: only the launch knows it
    num_stages: int
    shared_bytes: int  # per block
    shared_limit_bytes: int  # per block, on this GPU
    registers: int  # per thread
    spill_bytes: int  # per thread
    tensor_core: str  # instruction family, "" if there is none
    async_copies: int
    load_widths_bytes: tuple[int, ...]  # per thread, of the global loads in the code, widest first
    config: str  # `128x256x64, 8 warps, 3 stages`; "" for CUDA C++
