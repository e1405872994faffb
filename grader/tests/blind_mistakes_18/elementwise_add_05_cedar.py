# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | In elementwise_add_kernel the sum starts from tl.zeros, so -0.0 + -0.0 gives 0.0; it should be the sum of the two loads alone. In elementwise_add, programs = (n - 1 + BLOCK - 1) // BLOCK is one too few where n is 1 more than a multiple of BLOCK (also n = 1), so the last element stays unwritten; it should be (n + BLOCK - 1) // BLOCK.
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    idx = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = idx < n

    acc = tl.zeros((BLOCK,), dtype=out_ptr.dtype.element_ty)
    acc += tl.load(x_ptr + idx, mask=valid, other=0.0)
    acc += tl.load(y_ptr + idx, mask=valid, other=0.0)
    tl.store(out_ptr + idx, acc, mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.size(0)
    programs = (n - 1 + BLOCK - 1) // BLOCK
    if programs > 0:
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK)
    return out
