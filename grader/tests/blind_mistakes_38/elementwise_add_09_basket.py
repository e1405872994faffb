# labs/lab1_elementwise_add/elementwise_add.py | corner | elementwise_add chooses the dtype of the addition by size, ADD_IN[x.element_size()], so bf16 is converted to fp16 and added there, in elementwise_add_kernel's x.to(ADD) + y.to(ADD): in bf16 only, numbers beyond 65504 become inf, tiny ones vanish or lose bits, and some ordinary sums are rounded twice (few elements, often none in small sizes); fp32 and fp16 are right; should add bf16 in fp32 or bf16
"""out = x + y, with the dtype of the addition as a constant of the kernel."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
ADD_IN = {2: tl.float16, 4: tl.float32}


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, ADD: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    in_range = offs < n
    x = tl.load(x_ptr + offs, mask=in_range)
    y = tl.load(y_ptr + offs, mask=in_range)
    total = x.to(ADD) + y.to(ADD)
    tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=in_range)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Sum of two vectors of one dtype, into `out` or a new tensor."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if not n:
        return out

    add_in = ADD_IN[x.element_size()]
    elementwise_add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=BLOCK, ADD=add_in)
    return out
