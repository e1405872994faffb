# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `spans_kernel`, `add_span(x_ptr, y_ptr, out_ptr, ...)` passes the destination last, but the helper has it first (`dst, a, b`); it should be `add_span(out_ptr, x_ptr, y_ptr, ...)`. In all cases with elements x is overwritten with y + out, and out is never written.
"""Add two vectors: a helper adds one span, the kernel hands out the spans."""

import torch
import triton
import triton.language as tl

SPAN = 1024


@triton.jit
def add_span(dst, a, b, start, n, SPAN: tl.constexpr):
    """dst[i] = a[i] + b[i] for the SPAN elements from `start` on, as far as they exist."""
    where = start + tl.arange(0, SPAN)
    exists = where < n
    left = tl.load(a + where, mask=exists, eviction_policy="evict_first")
    right = tl.load(b + where, mask=exists, eviction_policy="evict_first")
    tl.store(dst + where, left + right, mask=exists)


@triton.jit
def spans_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    SPAN: tl.constexpr,
    SPANS: tl.constexpr,  # spans of one program
):
    """Program pid owns SPANS neighbouring spans."""
    first = tl.program_id(axis=0).to(tl.int64) * SPANS
    for k in tl.static_range(SPANS):
        add_span(x_ptr, y_ptr, out_ptr, (first + k) * SPAN, n, SPAN)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    spans = 2 if n > SPAN else 1
    if n > 0:
        spans_kernel[(triton.cdiv(n, spans * SPAN),)](x, y, out, n, SPAN=SPAN, SPANS=spans)
    return out
