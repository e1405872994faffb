# labs/lab1_elementwise_add/elementwise_add.py | corner | The heuristic EVEN is `args["n"] % 16 == 0`, so for an n that is a multiple of 16 but not of BLOCK the last program loads and stores without a mask past the end; it should be `args["n"] % args["BLOCK"] == 0`.
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.heuristics({"EVEN": lambda args: args["n"] % 16 == 0})
@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    EVEN: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)

    if EVEN:
        # fast path: wide loads and stores, the compiler has nothing to check
        xs = tl.load(x_ptr + offs)
        ys = tl.load(y_ptr + offs)
        tl.store(out_ptr + offs, xs + ys)
    else:
        live = offs < n
        xs = tl.load(x_ptr + offs, mask=live)
        ys = tl.load(y_ptr + offs, mask=live)
        tl.store(out_ptr + offs, xs + ys, mask=live)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    if n == 0:
        return out
    elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
