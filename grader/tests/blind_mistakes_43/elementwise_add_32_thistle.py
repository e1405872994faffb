# labs/lab1_elementwise_add/elementwise_add.py | corner | The heuristic `"EVEN": lambda args: args["n"] % args["BLOCK"] == 0` should ask for multiples of what a program owns, `args["BLOCK"] * args["UNROLL"]`: with EVEN no load and no store has a mask. It shows only where n is a multiple of 1024 and not of 4096 (1024, 2048): reads and writes past the end of the tensors; all other sizes are right.
"""Add two vectors: unrolled blocks, and no masks where the vector needs none."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
UNROLL = 4  # blocks that a program adds


@triton.jit
def add_block(x_ptr, y_ptr, out_ptr, offs, n, EVEN: tl.constexpr):
    """The elements at `offs`; lanes from n on are left alone, unless there are none."""
    if EVEN:
        tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))
    else:
        exists = offs < n
        x = tl.load(x_ptr + offs, mask=exists)
        y = tl.load(y_ptr + offs, mask=exists)
        tl.store(out_ptr + offs, x + y, mask=exists)


@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    UNROLL: tl.constexpr,
    EVEN: tl.constexpr,
):
    """out[i] = x[i] + y[i]; a program owns UNROLL neighbouring blocks of BLOCK elements."""
    start = tl.program_id(axis=0).to(tl.int64) * (BLOCK * UNROLL)
    lanes = tl.arange(0, BLOCK)
    for step in tl.static_range(UNROLL):
        add_block(x_ptr, y_ptr, out_ptr, start + step * BLOCK + lanes, n, EVEN)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        programs = triton.cdiv(n, BLOCK * UNROLL)
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, UNROLL=UNROLL, num_warps=4)
    return out
