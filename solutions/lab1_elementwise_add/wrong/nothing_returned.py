"""EXPECT WRONG/RETURNED from elementwise_add: the function ends without a return"""

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
    # Past 2^31 elements an int32 offset would wrap around.
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    # Lanes past the end belong to somebody else: neither read nor written.
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    # n = 0 is a valid size: there is nothing to launch then.
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, BLOCK),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)
