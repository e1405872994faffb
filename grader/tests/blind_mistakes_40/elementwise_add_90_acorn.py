# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In strip_kernel y is read at `place(start, lane, turn, LANES)`, turn and lane swapped, so at start + lane * LANES + turn; it should be `place(start, turn, lane, LANES)`, i.e. `offs`. Wrong elements of y (or masked ones) are added for every n >= 2; the mask keeps the reads in bounds, and only n = 1 (and 0) is right.
"""Add two vectors: a program goes over its strip of elements in a few unrolled turns."""

import torch
import triton
import triton.language as tl

LANES = 1024
TURNS = 4


@triton.jit
def place(start, turn, lane, LANES: tl.constexpr):
    """The elements of one turn: neighbouring lanes have neighbouring elements."""
    return start + turn * LANES + lane


@triton.jit
def fetch(ptr, offs, n):
    """The elements at offs, as far as they exist."""
    return tl.load(ptr + offs, mask=offs < n)


@triton.jit
def strip_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    LANES: tl.constexpr,
    TURNS: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns TURNS * LANES elements from pid * TURNS * LANES on."""
    start = tl.program_id(axis=0).to(tl.int64) * (TURNS * LANES)
    lane = tl.arange(0, LANES)
    for turn in tl.static_range(TURNS):
        offs = place(start, turn, lane, LANES)
        x = fetch(x_ptr, offs, n)
        y = fetch(y_ptr, place(start, lane, turn, LANES), n)
        tl.store(out_ptr + offs, x + y, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    if n > 0:
        strips = triton.cdiv(n, TURNS * LANES)
        strip_kernel[(strips,)](x, y, out, n, LANES=LANES, TURNS=TURNS, num_warps=4)
    return out
