# labs/lab1_elementwise_add/elementwise_add.py | right | A branch at run time in the kernel: programs that lie inside of the vector add two unrolled blocks without a mask, the last one takes another helper with a mask; the result is a name of its own, `result`.
"""Add two vectors: programs inside of the vector need no mask, the last one does."""

import torch
import triton
import triton.language as tl

LANES = 1024
UNROLL = 2


@triton.jit
def add_inside(x_ptr, y_ptr, out_ptr, offs, LANES: tl.constexpr, UNROLL: tl.constexpr):
    """UNROLL blocks, all of whose lanes exist."""
    for k in tl.static_range(UNROLL):
        at = offs + k * LANES
        tl.store(out_ptr + at, tl.load(x_ptr + at) + tl.load(y_ptr + at))


@triton.jit
def add_at_the_end(x_ptr, y_ptr, out_ptr, offs, n, LANES: tl.constexpr, UNROLL: tl.constexpr):
    """UNROLL blocks, of which some lanes may lie past the end."""
    for k in tl.static_range(UNROLL):
        at = offs + k * LANES
        exists = at < n
        x = tl.load(x_ptr + at, mask=exists)
        y = tl.load(y_ptr + at, mask=exists)
        tl.store(out_ptr + at, x + y, mask=exists)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    LANES: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns LANES * UNROLL elements that follow each other."""
    start = tl.program_id(axis=0).to(tl.int64) * (LANES * UNROLL)
    offs = start + tl.arange(0, LANES)
    if start + LANES * UNROLL <= n:
        add_inside(x_ptr, y_ptr, out_ptr, offs, LANES, UNROLL)
    else:
        add_at_the_end(x_ptr, y_ptr, out_ptr, offs, n, LANES, UNROLL)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    result = torch.empty_like(x) if out is None else out
    n = x.numel()
    programs = triton.cdiv(n, LANES * UNROLL)
    if programs:
        elementwise_add_kernel[(programs,)](x, y, result, n, LANES=LANES, UNROLL=UNROLL)
    return result
