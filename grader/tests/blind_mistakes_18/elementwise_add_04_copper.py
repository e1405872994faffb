# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In elementwise_add the launch passes (x, y, out), but elementwise_add_kernel has its parameters in the order (out_ptr, x_ptr, y_ptr): the sum of y and the content of out is stored into x, and out stays unwritten. The launch should pass (out, x, y).
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def elementwise_add_kernel(out_ptr, x_ptr, y_ptr, n_elements, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i] for the BLOCK elements of this program."""
    pid = tl.program_id(axis=0)
    start = pid.to(tl.int64) * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    mask = offsets < n_elements

    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    assert x.shape == y.shape and x.dtype == y.dtype
    if out is None:
        out = torch.empty_like(x)
    n_elements = x.numel()
    if n_elements == 0:
        return out
    grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK"]),)
    elementwise_add_kernel[grid](x, y, out, n_elements, BLOCK=BLOCK, num_warps=8)
    return out
