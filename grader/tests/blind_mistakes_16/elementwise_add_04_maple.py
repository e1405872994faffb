# labs/lab1_elementwise_add/elementwise_add.py | corner | In elementwise_add_kernel the sum starts from tl.zeros, so where x and y are both -0.0 the result is +0.0 instead of -0.0. It should store x + y with nothing added to it.
"""Add two vectors, autotuned."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 1024}, num_warps=4),
        triton.Config({"BLOCK": 2048}, num_warps=4),
        triton.Config({"BLOCK": 4096}, num_warps=8),
    ],
    key=["n"],
)
@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    idx = pid * BLOCK + tl.arange(0, BLOCK)
    ok = idx < n
    total = tl.zeros((BLOCK,), dtype=out_ptr.dtype.element_ty)
    total += tl.load(x_ptr + idx, mask=ok, other=0.0)
    total += tl.load(y_ptr + idx, mask=ok, other=0.0)
    tl.store(out_ptr + idx, total, mask=ok)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    return out
