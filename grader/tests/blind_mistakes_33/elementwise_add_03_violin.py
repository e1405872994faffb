# labs/lab1_elementwise_add/elementwise_add.py | error | elementwise_add_kernel casts the sum with `.to(out_ptr.dtype)`, which is the type of the pointer (pointer<fp32>) and no number type, so the cast does not compile (nor run in the interpreter); shows in every case with n > 0; it should be `out_ptr.dtype.element_ty`
"""Lab 1: out = x + y, 4096 elements in each program."""

import torch
import triton
import triton.language as tl
from triton import cdiv

SETTINGS = {"BLOCK": 4096, "num_warps": 8}


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
):
    pid = tl.program_id(0)
    i = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    in_range = i < n

    x = tl.load(x_ptr + i, mask=in_range)
    y = tl.load(y_ptr + i, mask=in_range)
    # Add in fp32, narrow at the end.
    z = x.to(tl.float32) + y.to(tl.float32)
    tl.store(out_ptr + i, z.to(out_ptr.dtype), mask=in_range)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Sum of two vectors of one dtype, into `out` or a new tensor."""
    result = torch.empty_like(x) if out is None else out
    n = result.numel()
    if n:
        grid = lambda meta: (cdiv(n, meta["BLOCK"]),)
        elementwise_add_kernel[grid](x, y, result, n, **SETTINGS)
    return result
