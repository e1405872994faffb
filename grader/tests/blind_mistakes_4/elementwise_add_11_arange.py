# labs/lab1_elementwise_add/elementwise_add.py | error | elementwise_add_kernel, tl.arange(start, start + BLOCK): start depends on the program and is no constant, but the bounds of tl.arange must be constexpr; it must be start + tl.arange(0, BLOCK)
import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def elementwise_add_kernel(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    """c = a + b for one block."""
    start = tl.program_id(0) * BLOCK
    offsets = tl.arange(start, start + BLOCK)
    live = offsets < n
    a = tl.load(a_ptr + offsets, mask=live)
    b = tl.load(b_ptr + offsets, mask=live)
    tl.store(c_ptr + offsets, a + b, mask=live)


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    elementwise_add_kernel[grid](x, y, out, n)
    return out
