# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) In `elementwise_add`, `width = 1 << (n.bit_length() - 1)` is the power of two below n; it should be `1 << (n - 1).bit_length()` (`triton.next_power_of_2(n)`). For n < 1024 that is no power of two (7, 48, 127, 129, 1009) the last elements are unwritten. (2) In `long_kernel`, `y = tl.load(y_ptr + lanes, mask=exists)` should use `y_ptr + offs`: for n > 1024 every second block of 1024 gets the y of the block before it.
"""Add two vectors: short ones in one program, long ones in programs of two unrolled blocks."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
UNROLL = 2


@triton.jit
def short_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    WIDTH: tl.constexpr,
):
    """out[i] = x[i] + y[i]; the only program has all elements."""
    offs = tl.arange(0, WIDTH)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


@triton.jit
def long_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    UNROLL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns UNROLL neighbouring blocks."""
    start = tl.program_id(axis=0).to(tl.int64) * (UNROLL * BLOCK)
    lanes = start + tl.arange(0, BLOCK)
    for k in tl.static_range(UNROLL):
        offs = lanes + k * BLOCK
        exists = offs < n
        x = tl.load(x_ptr + offs, mask=exists)
        y = tl.load(y_ptr + lanes, mask=exists)
        tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    if n <= BLOCK:
        width = 1 << (n.bit_length() - 1)  # a power of two
        short_kernel[(1,)](x, y, out, n, WIDTH=width)
    else:
        programs = triton.cdiv(n, UNROLL * BLOCK)
        long_kernel[(programs,)](x, y, out, n, UNROLL=UNROLL, BLOCK=BLOCK)
    return out
