"""What the compiler made of one kernel, as results.json holds it."""

from __future__ import annotations

from grader.results.base import Model


class KernelFacts(Model):
    """One compiled kernel: sizes in bytes, counts of instructions in the text, not of executions."""

    name: str
    constants: dict[str, int | float | str | bool]
    num_warps: int  # 0 of CUDA C++, as is num_stages: the launch alone knows
    num_stages: int
    shared_bytes: int  # of a block
    shared_limit_bytes: int  # that a block may have on this GPU
    registers: int  # of a thread
    spill_bytes: int  # of a thread
    tensor_core: str  # instruction family, "" where there is none
    async_copies: int
    load_widths_bytes: tuple[int, ...]  # of a thread, widest first, of the global loads in the text
    config: str  # `128x256x64, 8 warps, 3 stages`; "" of CUDA C++
