# labs/lab1_elementwise_add/elementwise_add.py | contract | In `elementwise_add`, `out = torch.empty(n, device=x.device)` has PyTorch's default dtype, fp32; it should be `torch.empty_like(x)`. Without `out` the result for fp16 and bf16 has the right numbers, but the dtype fp32 ("otherwise the function returns a new tensor like `x`"); fp32, and calls with `out`, are right.
"""Add two vectors: four pieces for each program, unrolled."""

import torch
import triton
import triton.language as tl

WIDTH = 1024
PIECES = 4


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,)
    n,
    WIDTH: tl.constexpr,
    PIECES: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns PIECES * WIDTH elements, from pid * PIECES * WIDTH on."""
    piece = tl.program_id(axis=0).to(tl.int64) * PIECES
    for k in tl.static_range(PIECES):
        offs = (piece + k) * WIDTH + tl.arange(0, WIDTH)
        valid = offs < n
        left = tl.load(x_ptr + offs, mask=valid)
        right = tl.load(y_ptr + offs, mask=valid)
        tl.store(out_ptr + offs, left + right, mask=valid)


def launch(x, y, out, n):
    """Fill out, which has n elements, at least one."""
    programs = triton.cdiv(n, WIDTH * PIECES)
    elementwise_add_kernel[(programs,)](x, y, out, n, WIDTH=WIDTH, PIECES=PIECES, num_warps=4)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    n = x.numel()
    if out is None:
        out = torch.empty(n, device=x.device)
    if n > 0:
        launch(x, y, out, n)
    return out
