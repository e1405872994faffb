# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) elementwise_add_kernel: both operands are converted to fp16 before the sum, so fp32 and bf16 lose digits or overflow to inf; no conversion is needed. (2) elementwise_add, host: the kernel always writes to a new tensor, so a given out stays unwritten and is not returned; a new one may be made only if out is None
import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 512}, num_warps=4),
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def elementwise_add_kernel(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    """c = a + b for one block."""
    begin = tl.program_id(0).to(tl.int64) * BLOCK
    idx = begin + tl.arange(0, BLOCK)
    keep = idx < n
    a = tl.load(a_ptr + idx, mask=keep)
    b = tl.load(b_ptr + idx, mask=keep)
    tl.store(c_ptr + idx, a.to(tl.float16) + b.to(tl.float16), mask=keep)


def elementwise_add(x, y, *, out=None):
    n = x.numel()
    out = torch.empty_like(x)
    if n == 0:
        return out
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    elementwise_add_kernel[grid](x, y, out, n)
    return out
