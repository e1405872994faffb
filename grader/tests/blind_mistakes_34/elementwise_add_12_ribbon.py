# labs/lab1_elementwise_add/elementwise_add.py | corner | in elementwise_add, the launch for the rest is under elif rest, so it does not happen where there are full blocks, too: the last n % BLOCK elements stay unwritten for n > BLOCK = 2048 that is no multiple of 2048 (4099, 65537, 2^20 + 3, ...); it should be a second if
"""Add two vectors: full blocks without masks, and one masked program for the rest."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # fp32, fp16 or bf16, contiguous
    y_ptr,  # like x
    out_ptr,  # like x
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1, which all exist."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))


@triton.jit
def rest_kernel(x_ptr, y_ptr, out_ptr, done, rest, BLOCK: tl.constexpr):
    """The same for elements done to done + rest - 1, fewer than BLOCK: one program."""
    lane = tl.arange(0, BLOCK)
    exists = lane < rest
    x = tl.load(x_ptr + done + lane, mask=exists)
    y = tl.load(y_ptr + done + lane, mask=exists)
    tl.store(out_ptr + done + lane, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    full, rest = divmod(x.numel(), BLOCK)
    if full:
        elementwise_add_kernel[(full,)](x, y, out, BLOCK=BLOCK, num_warps=8)
    elif rest:
        rest_kernel[(1,)](x, y, out, full * BLOCK, rest, BLOCK=BLOCK)
    return out
