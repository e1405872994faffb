# labs/lab1_elementwise_add/elementwise_add.py | contract | For n = 0 the function returns a new `torch.empty_like(x)` before it looks at `out`: the given out must be returned also where n is 0.
import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i0 = tl.program_id(0).to(tl.int64) * BLOCK
    i = i0 + tl.arange(0, BLOCK)
    a = tl.load(x_ptr + i, i < n, 0)
    b = tl.load(y_ptr + i, i < n, 0)
    tl.store(out_ptr + i, a + b, i < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n = x.numel()
    if n == 0:  # nothing to add
        return torch.empty_like(x)
    out = torch.empty_like(x) if out is None else out
    grid = (triton.cdiv(n, BLOCK), 1, 1)
    elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)
    return out
