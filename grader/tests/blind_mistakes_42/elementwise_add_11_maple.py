# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `_add_blocks`, `tl.reshape(tl.join(x, y), (2, BLOCK))` with `tl.reduce(pair, 0, _plus)`: `tl.join` makes the new axis the last one, so the reshape does not give one row for x and one for y but mixes them. It should be `tl.reduce(tl.join(x, y), 1, _plus)` (or a `tl.trans` in place of the reshape). Wrong at every size; for n = 1 the result is x alone.
"""Add two vectors: both blocks in one tile, summed along its short axis."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
WARPS = 4


@triton.jit
def _plus(left, right):
    return left + right


@triton.jit
def _read(ptr, index, inside):
    """A block in fp32: wide enough that the sum of two 16-bit numbers is rounded only once."""
    return tl.load(ptr + index, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _add_blocks(x, y, BLOCK: tl.constexpr):
    """One row for x, one row for y; the sum runs down the two rows."""
    pair = tl.reshape(tl.join(x, y), (2, BLOCK))
    return tl.reduce(pair, 0, _plus)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    pid = tl.program_id(axis=0).to(tl.int64)
    index = pid * BLOCK + tl.arange(0, BLOCK)
    inside = index < n

    x = _read(x_ptr, index, inside)
    y = _read(y_ptr, index, inside)
    total = _add_blocks(x, y, BLOCK)

    tl.store(out_ptr + index, total.to(out_ptr.dtype.element_ty), mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        programs = triton.cdiv(n, BLOCK)
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, num_warps=WARPS)
    return out
