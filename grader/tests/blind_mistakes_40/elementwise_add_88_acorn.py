# labs/lab1_elementwise_add/elementwise_add.py | contract | In destination `return torch.empty(x.shape, device=x.device)` makes an fp32 tensor; it should be `torch.empty_like(x)` (or with `dtype=x.dtype`). Without `out`, the result of fp16 and bf16 inputs has the right numbers but the dtype fp32, where the README asks for a new tensor like x; with `out`, or in fp32, all is right.
"""Add two vectors; a vector of whole blocks takes a kernel without masks."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.heuristics({"WHOLE": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) contiguous
    n,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,  # n is a multiple of BLOCK
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if WHOLE:
        x = tl.load(x_ptr + offs)
        y = tl.load(y_ptr + offs)
        tl.store(out_ptr + offs, x + y)
    else:
        exists = offs < n
        x = tl.load(x_ptr + offs, mask=exists)
        y = tl.load(y_ptr + offs, mask=exists)
        tl.store(out_ptr + offs, x + y, mask=exists)


def destination(x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    """Where the sum goes: to `out`, or to a new tensor on the device of x."""
    if out is not None:
        return out
    return torch.empty(x.shape, device=x.device)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    total = destination(x, out)
    n = x.numel()
    if n > 0:
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)  # noqa: E731
        elementwise_add_kernel[grid](x, y, total, n, BLOCK=BLOCK)
    return total
