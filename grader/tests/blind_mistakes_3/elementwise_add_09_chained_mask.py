# labs/lab1_elementwise_add/elementwise_add.py | error | elementwise_add_kernel, the mask: a chained comparison (first <= offs < n) of blocks does not compile (the interpreter takes the last comparison alone); it must be (first <= offs) & (offs < n), or just offs < n.
import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = first + tl.arange(0, BLOCK)
    mask = first <= offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    out = x + y
    tl.store(out_ptr + offs, out, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, BLOCK),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)
    return out
