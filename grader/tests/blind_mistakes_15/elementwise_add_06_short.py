# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | First, the mask of the kernel is idx <= n and should be idx < n: where n is no multiple of 1024 one element past the end is read and written. Second, without out the new tensor is torch.empty(n, device=...), which is fp32 for fp16 and bf16 inputs too; it should have x.dtype.
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, z, n, B: tl.constexpr):
    idx = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    ok = idx <= n
    tl.store(z + idx, tl.load(x + idx, mask=ok) + tl.load(y + idx, mask=ok), mask=ok)


def elementwise_add(x, y, *, out=None):
    n = x.numel()
    z = torch.empty(n, device=x.device) if out is None else out
    if n != 0:
        kernel[(triton.cdiv(n, 1024),)](x, y, z, n, B=1024)
    return z
