# labs/lab1_elementwise_add/elementwise_add.py | contract | In the host function, `return x` under `if n == 0` returns the input; it should return `out` where one is given and else a new tensor like x ("`out` is returned all the same"). It shows for n = 0 only, with `out` and without; there are no numbers to be wrong.
"""Add two vectors: the width of a block is tuned for each length."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((1024, 4), (2048, 8), (4096, 8))
]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    n = x.numel()
    if n == 0:
        return x  # no elements: nothing to tune, nothing to launch
    if out is None:
        out = torch.empty_like(x)
    elementwise_add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    return out
