# labs/lab1_elementwise_add/elementwise_add.py | error | In `elementwise_add_kernel`, `offs = pid * BLOCK + tl.arange(0, BLOCK)` is an int32 block, and `offs += stride` with the int64 `stride` makes it int64: a loop-carried variable may not change its type, so the kernel does not compile for a GPU (Triton: "Loop-carried variable offs has initial type ... but is re-assigned to ..."), for every n > 0. It should be `offs = pid.to(tl.int64) * BLOCK + ...`. The interpreter, which has no such check, gives right values.
"""Add two vectors with a grid-stride loop, as one would in CUDA."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
WAVES = 16
CPU_PROGRAMS = 64


@triton.jit
def add_block(x_ptr, y_ptr, out_ptr, offs, n):
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    blocks,  # n / BLOCK, rounded up
    BLOCK: tl.constexpr,
):
    """Program pid starts with block pid and goes on in steps of the whole grid."""
    pid = tl.program_id(axis=0)
    programs = tl.num_programs(axis=0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    stride = programs.to(tl.int64) * BLOCK
    for _ in range(pid, blocks, programs):
        add_block(x_ptr, y_ptr, out_ptr, offs, n)
        offs += stride


def grid_of(x: torch.Tensor, blocks: int) -> tuple:
    """A few programs for each multiprocessor, or one for each block where those are fewer."""
    most = CPU_PROGRAMS
    if x.is_cuda:
        most = WAVES * torch.cuda.get_device_properties(x.device).multi_processor_count
    return (min(blocks, most),)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        blocks = triton.cdiv(n, BLOCK)
        elementwise_add_kernel[grid_of(x, blocks)](x, y, out, n, blocks, BLOCK=BLOCK)
    return out
