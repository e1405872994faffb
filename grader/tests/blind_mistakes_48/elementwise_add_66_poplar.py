# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) In `body_kernel`, `y = tl.load(y_ptr + lane, mask=exists)` does not move on with k; it should be `y_ptr + offs`: every second piece of 1024 elements is wrong (n from 1040 on, e.g. 1536, 2048, 4099). (2) In `elementwise_add`, `LANES=GROUP // x.element_size()` takes 16 elements for 16 bytes; it should be `LANES=GROUP`: of the up to 15 elements after the last multiple of 16 only 4 (fp32) or 8 (fp16, bf16) are written, as for n = 7 and 127 in fp32 and n = 127 in bf16.
"""Add two vectors in two launches: the multiple of 16 below n in wide blocks, and what is left over."""

import torch
import triton
import triton.language as tl

GROUP = 16
WIDTH = 1024
UNROLL = 2


@triton.jit
def body_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    even,  # a multiple of 16, so that the compiler can use wide accesses although there is a mask
    WIDTH: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """out[i] = x[i] + y[i] for i < even; a program owns UNROLL pieces of WIDTH elements."""
    first = tl.program_id(axis=0).to(tl.int64) * (WIDTH * UNROLL)
    lane = first + tl.arange(0, WIDTH)
    for k in tl.static_range(UNROLL):
        offs = lane + k * WIDTH
        exists = offs < even
        x = tl.load(x_ptr + offs, mask=exists)
        y = tl.load(y_ptr + lane, mask=exists)
        tl.store(out_ptr + offs, x + y, mask=exists)


@triton.jit
def rest_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    even,
    n,
    LANES: tl.constexpr,
):
    """out[i] = x[i] + y[i] for even <= i < n; there is one program."""
    offs = even + tl.arange(0, LANES)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    even = n // GROUP * GROUP
    if even > 0:
        programs = triton.cdiv(even, WIDTH * UNROLL)
        body_kernel[(programs,)](x, y, out, even, WIDTH=WIDTH, UNROLL=UNROLL)
    if n > even:
        rest_kernel[(1,)](x, y, out, even, n, LANES=GROUP // x.element_size(), num_warps=1)
    return out
