# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `elementwise_add_kernel`, `x, y, offs = x_next, y_next, offs_next` stands before `tl.store(out_ptr + offs, total, mask=offs < n)`, so each sum is stored at the offsets of the next turn; the store must use the old `offs` (store first, then move on). Up to 2048 blocks nothing is written at all, beyond that every block lands 2048 blocks too late and the first ones stay unwritten: wrong for every n > 0.
"""Add two vectors with a fixed number of programs; each one loads its next block ahead of time."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 2048  # about as many as an H200 holds at once: 132 SMs, 16 programs of 4 warps each


@triton.jit
def load_block(ptr, offs, n):
    """The block at offs; lanes past the end are not read."""
    return tl.load(ptr + offs, mask=offs < n, other=0.0)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    n_blocks,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns the blocks pid, pid + programs, pid + 2 * programs, ..."""
    pid = tl.program_id(axis=0)
    programs = tl.num_programs(axis=0)
    step = programs.to(tl.int64) * BLOCK

    offs = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = load_block(x_ptr, offs, n)
    y = load_block(y_ptr, offs, n)
    for _ in range(pid, n_blocks, programs):
        # The loads of the next turn are on their way while this block is added and stored.
        offs_next = offs + step
        x_next = load_block(x_ptr, offs_next, n)
        y_next = load_block(y_ptr, offs_next, n)
        total = x + y
        x, y, offs = x_next, y_next, offs_next
        tl.store(out_ptr + offs, total, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        n_blocks = triton.cdiv(n, BLOCK)
        grid = (min(n_blocks, PROGRAMS),)
        elementwise_add_kernel[grid](x, y, out, n, n_blocks, BLOCK=BLOCK, num_warps=4)
    return out
