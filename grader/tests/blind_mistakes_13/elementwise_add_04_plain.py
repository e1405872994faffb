# labs/lab1_elementwise_add/elementwise_add.py | corner | The grid `(n + BLOCK - 2) // BLOCK` should be `(n + BLOCK - 1) // BLOCK`: where n is one more than a multiple of BLOCK (also n = 1) the last program is missing and the last element is never written.
import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    m = offs < n
    s = tl.load(x_ptr + offs, m) + tl.load(y_ptr + offs, m)
    tl.store(out_ptr + offs, s, m)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    # integer ceil
    blocks = (n + BLOCK - 2) // BLOCK
    elementwise_add_kernel[(blocks,)](x, y, out, n, BLOCK=BLOCK)
    return out
