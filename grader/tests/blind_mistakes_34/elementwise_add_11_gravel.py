# labs/lab1_elementwise_add/elementwise_add.py | error | in elementwise_add_kernel, the offsets are a 2-D tile of (ROWS, COLS) but the mask is 1-D of ROWS * COLS lanes (mask = start + tl.arange(0, ROWS * COLS) < n): the shapes do not match in tl.load, so the kernel does not compile (every n >= 1); it should be mask = offs < n
"""Add two vectors, seen as tiles of ROWS times COLS elements."""

import torch
import triton
import triton.language as tl

ROWS, COLS = 8, 128


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns ROWS * COLS elements that follow one another."""
    start = tl.program_id(axis=0).to(tl.int64) * (ROWS * COLS)
    row = tl.arange(0, ROWS)
    col = tl.arange(0, COLS)
    offs = start + row[:, None] * COLS + col[None, :]
    mask = start + tl.arange(0, ROWS * COLS) < n

    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    tiles = triton.cdiv(n, ROWS * COLS)
    if tiles > 0:
        elementwise_add_kernel[(tiles,)](x, y, out, n, ROWS=ROWS, COLS=COLS)
    return out
