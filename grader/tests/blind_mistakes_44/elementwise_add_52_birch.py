# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In the loop of `pipelined_add_kernel`, `tl.store(out_ptr + offs, x + y_ahead, mask=offs < n)` adds the prefetched y of the next trip to the current x; it should be `x + y`. Shows everywhere: with one block a program the result equals x (y_ahead is all masked), in long vectors x[i] meets y[i + step].
"""Add two vectors: persistent programs that load the next block before they store the current one."""

import torch
import triton
import triton.language as tl

WIDTH = 1024
PROGRAMS = 2048


@triton.jit
def fetch(ptr, offs, n):
    return tl.load(ptr + offs, mask=offs < n, other=0.0)


@triton.jit
def pipelined_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    trips,  # blocks of each program, rounded up
    WIDTH: tl.constexpr,
):
    """Program p owns the blocks p, p + programs, p + 2 * programs, ...; one block is always on its way."""
    step = tl.num_programs(axis=0) * WIDTH
    offs = tl.program_id(axis=0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)

    x = fetch(x_ptr, offs, n)
    y = fetch(y_ptr, offs, n)
    for _ in range(trips):
        # Start the loads of the next trip. Behind the end all lanes are masked.
        ahead = offs + step
        x_ahead = fetch(x_ptr, ahead, n)
        y_ahead = fetch(y_ptr, ahead, n)

        # Meanwhile finish the current block.
        tl.store(out_ptr + offs, x + y_ahead, mask=offs < n)

        offs = ahead
        x = x_ahead
        y = y_ahead


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    if n == 0:
        return out
    blocks = triton.cdiv(n, WIDTH)
    programs = min(blocks, PROGRAMS)
    trips = triton.cdiv(blocks, programs)
    pipelined_add_kernel[(programs,)](x, y, out, n, trips, WIDTH=WIDTH)
    return out
