# labs/lab1_elementwise_add/elementwise_add.py | error | In elementwise_add_kernel `left = n.to(tl.int64) - start` fails for n = 1, because an integer argument that is 1 is a constexpr, which has no `.to`; it should be `left = n - start`, as start is int64 already. All other sizes are right.
"""Add two vectors: a program moves the three pointers to its part, and counts what is left from there."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
STRIPS = 2


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    STRIPS: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns STRIPS blocks from element pid * STRIPS * BLOCK on."""
    start = tl.program_id(axis=0).to(tl.int64) * (STRIPS * BLOCK)
    # Both sides in int64: the vector may have more than 2^31 elements.
    left = n.to(tl.int64) - start
    x_part = x_ptr + start
    y_part = y_ptr + start
    out_part = out_ptr + start
    for strip in tl.static_range(STRIPS):
        lane = strip * BLOCK + tl.arange(0, BLOCK)
        exists = lane < left
        x = tl.load(x_part + lane, mask=exists)
        y = tl.load(y_part + lane, mask=exists)
        tl.store(out_part + lane, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, STRIPS * BLOCK),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, STRIPS=STRIPS)
    return out
