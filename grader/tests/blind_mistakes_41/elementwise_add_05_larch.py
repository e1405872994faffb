# labs/lab1_elementwise_add/elementwise_add.py | error | In `elementwise_add_kernel`, `left = n.to(tl.int64) - start`: an integer argument that is 1 is a constant (a Python int), which has no `.to`, so the kernel does not compile for n = 1 (AttributeError); `n - start` is enough, as start is int64 already. All other sizes are right.
"""Add two vectors: each program moves its pointers to its own elements and adds them in PARTS pieces."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PARTS = 2


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * SPAN to (pid + 1) * SPAN - 1, SPAN = PARTS * BLOCK."""
    # Only the start of a program needs 64 bits; the places inside of it are small.
    start = tl.program_id(axis=0).to(tl.int64) * (PARTS * BLOCK)
    left = n.to(tl.int64) - start
    x_ptr += start
    y_ptr += start
    out_ptr += start

    for part in tl.static_range(PARTS):
        places = part * BLOCK + tl.arange(0, BLOCK)
        exists = places < left
        x = tl.load(x_ptr + places, mask=exists)
        y = tl.load(y_ptr + places, mask=exists)
        tl.store(out_ptr + places, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        programs = triton.cdiv(n, PARTS * BLOCK)
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, PARTS=PARTS, num_warps=4)
    return out
