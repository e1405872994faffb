# labs/lab1_elementwise_add/elementwise_add.py | right | Two different kernels: whole spans of 2048 elements (two strips, unrolled) are added without any mask, with the pointers moved to the span in int64, and a second launch of one masked program, as wide as the next power of two, does the rest. So the loads of the spans are 16 bytes wide also where n is no multiple of 16; n = 0 launches nothing.
"""Add two vectors: one launch for the whole spans, without masks, and one program for the rest."""

import torch
import triton
import triton.language as tl

STRIP = 1024
STRIPS = 2
SPAN = STRIP * STRIPS


@triton.jit
def spans_kernel(x_ptr, y_ptr, out_ptr, STRIP: tl.constexpr, STRIPS: tl.constexpr):
    """Program pid owns the whole span pid: STRIPS strips, all elements of which exist."""
    first = tl.program_id(axis=0).to(tl.int64) * (STRIP * STRIPS)
    # The pointers move to the span once; inside of it offsets are small.
    x_ptr += first
    y_ptr += first
    out_ptr += first
    lanes = tl.arange(0, STRIP)
    for strip in tl.static_range(STRIPS):
        offs = strip * STRIP + lanes
        x = tl.load(x_ptr + offs, eviction_policy="evict_first")
        y = tl.load(y_ptr + offs, eviction_policy="evict_first")
        tl.store(out_ptr + offs, x + y, eviction_policy="evict_first")


@triton.jit
def rest_kernel(x_ptr, y_ptr, out_ptr, start, rest, WIDTH: tl.constexpr):
    """One program for the elements start to start + rest - 1, which are fewer than a span."""
    lanes = tl.arange(0, WIDTH)
    exists = lanes < rest
    x = tl.load(x_ptr + start + lanes, mask=exists)
    y = tl.load(y_ptr + start + lanes, mask=exists)
    tl.store(out_ptr + start + lanes, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    spans, rest = divmod(x.numel(), SPAN)
    if spans > 0:
        spans_kernel[(spans,)](x, y, out, STRIP=STRIP, STRIPS=STRIPS)
    if rest > 0:
        # A start from 2^31 on is passed as int64.
        rest_kernel[(1,)](x, y, out, spans * SPAN, rest, WIDTH=triton.next_power_of_2(rest))
    return out
