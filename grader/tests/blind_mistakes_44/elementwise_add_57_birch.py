# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) In `unrolled_add_kernel`, `start = tl.program_id(axis=0).to(tl.int64) * BLOCK` should be `* (BLOCK * UNROLL)`: the programs overlap (same values), and with P = cdiv(n, 4096) programs only the first (P + 3) * 1024 elements are written; shows for longer vectors, e.g. n = 8192, 65537, 2^20 + 3. (2) In `to_result`, `tl.minimum(tl.maximum(total, -LARGEST), LARGEST)` turns infinities and overflows into the largest finite number, where PyTorch gives inf; the clamp should not be there. Shows with values at the ends of the range (inf, largest), in all dtypes.
"""Add two vectors: an unrolled loop over blocks, sums in fp32, rounded once at the store."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
UNROLL = 4


@triton.jit
def to_result(total, LARGEST: tl.constexpr, dtype: tl.constexpr):
    """Bring an fp32 sum into the range of the result, then round it."""
    total = tl.minimum(tl.maximum(total, -LARGEST), LARGEST)
    return total.to(dtype)


@triton.jit
def unrolled_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    LARGEST: tl.constexpr,  # largest finite number of the dtype
    BLOCK: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """out[i] = x[i] + y[i]; each program adds UNROLL blocks."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    for k in tl.static_range(UNROLL):
        offs = start + k * BLOCK + tl.arange(0, BLOCK)
        inside = offs < n
        x = tl.load(x_ptr + offs, mask=inside).to(tl.float32)
        y = tl.load(y_ptr + offs, mask=inside).to(tl.float32)
        total = to_result(x + y, LARGEST, out_ptr.dtype.element_ty)
        tl.store(out_ptr + offs, total, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, BLOCK * UNROLL),)
        unrolled_add_kernel[grid](
            x, y, out, n, LARGEST=torch.finfo(x.dtype).max, BLOCK=BLOCK, UNROLL=UNROLL
        )
    return out
