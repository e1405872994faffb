# labs/lab1_elementwise_add/elementwise_add.py | corner | The heuristic `{"EVEN": lambda args: args["n"] % 16 == 0}` of `elementwise_add_kernel` must be `args["n"] % args["BLOCK"] == 0`: EVEN takes the masks away from both loads and the store. It shows where n is a multiple of 16 but not of 1024 (48, 256, 512, 1536): reads and writes out of bounds behind the end.
"""Add two vectors: masks only at the sizes that need them."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def _load(ptr, offs, n, EVEN: tl.constexpr):
    if EVEN:
        block = tl.load(ptr + offs)
    else:
        block = tl.load(ptr + offs, mask=offs < n)
    return block


@triton.jit
def _store(ptr, offs, block, n, EVEN: tl.constexpr):
    if EVEN:
        tl.store(ptr + offs, block)
    else:
        tl.store(ptr + offs, block, mask=offs < n)


@triton.heuristics({"EVEN": lambda args: args["n"] % 16 == 0})
@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    EVEN: tl.constexpr,  # no program has lanes past the end
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    x = _load(x_ptr, offs, n, EVEN)
    y = _load(y_ptr, offs, n, EVEN)
    _store(out_ptr, offs, x + y, n, EVEN)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=BLOCK)
    return out
