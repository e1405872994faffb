# labs/lab1_elementwise_add/elementwise_add.py | error | tl.arange is called with bounds that depend on the program id; its bounds must be constexpr (pid * BLOCK + tl.arange(0, BLOCK)), so the kernel does not compile ("arange's arguments must be of type tl.constexpr"); shows at every n >= 1
import torch
import triton
import triton.language as tl


@triton.jit
def _add(x, y, o, n, B: tl.constexpr):
    lo = tl.program_id(0).to(tl.int64) * B
    i = tl.arange(lo, lo + B)
    m = i < n
    tl.store(o + i, tl.load(x + i, m) + tl.load(y + i, m), m)


def elementwise_add(x, y, *, out=None):
    out = torch.empty_like(x) if out is None else out
    if n := x.numel():
        _add[lambda meta: (triton.cdiv(n, meta["B"]),)](x, y, out, n, B=1024)
    return out
