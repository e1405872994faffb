# labs/lab1_elementwise_add/elementwise_add.py | corner | the heuristic of EVEN: n % 16 == 0 does not mean that the last block is full, so for n = 16, 48, 1040, ... the kernel reads and writes past the end without a mask; it must be n % BLOCK == 0.
import torch
import triton
import triton.language as tl


@triton.heuristics({"EVEN": lambda args: args["n"] % 16 == 0})
@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        # the fast path: 16 byte accesses without any mask
        tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))
    else:
        mask = offs < n
        x = tl.load(x_ptr + offs, mask=mask)
        y = tl.load(y_ptr + offs, mask=mask)
        tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n != 0:
        elementwise_add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
    return out
