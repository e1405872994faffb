# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In the loop of `elementwise_add_kernel`, `tl.store(out_ptr + offs, x_ahead + y, mask=offs < n)` adds the y of this chunk to the x of the next one; it should be `x + y`. All chunks but the last of the four of a program are wrong, so every n >= 1 (for n up to 1024 x is a masked lane, 0 in the interpreter, so the result is y alone there).
"""Add two vectors; each program has several chunks, and loads the next one before it stores the last."""

import torch
import triton
import triton.language as tl

CHUNK = 1024
CHUNKS = 4


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns CHUNKS chunks that follow each other."""
    start = tl.program_id(axis=0).to(tl.int64) * (CHUNK * CHUNKS)
    offs = start + tl.arange(0, CHUNK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    y = tl.load(y_ptr + offs, mask=offs < n)
    for _ in tl.static_range(1, CHUNKS):
        ahead = offs + CHUNK
        x_ahead = tl.load(x_ptr + ahead, mask=ahead < n)
        y_ahead = tl.load(y_ptr + ahead, mask=ahead < n)
        tl.store(out_ptr + offs, x_ahead + y, mask=offs < n)
        x = x_ahead
        y = y_ahead
        offs = ahead
    tl.store(out_ptr + offs, x + y, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        grid = (triton.cdiv(n, CHUNK * CHUNKS),)
        elementwise_add_kernel[grid](x, y, out, n, CHUNK=CHUNK, CHUNKS=CHUNKS)
    return out
