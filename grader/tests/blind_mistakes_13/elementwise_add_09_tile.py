# labs/lab1_elementwise_add/elementwise_add.py | right | Unusual: a program has a 2-D tile of ROWS x COLS elements of the vector, and a heuristic leaves out the mask where n is a multiple of the tile.
"""Add two vectors, seen as tiles of 8 x 128 elements."""

import torch
import triton
import triton.language as tl

ROWS = 8
COLS = 128


@triton.heuristics({"EVEN": lambda args: args["n"] % (args["ROWS"] * args["COLS"]) == 0})
@triton.jit
def elementwise_add_kernel(
    x_ptr, y_ptr, out_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr, EVEN: tl.constexpr
):
    """out[i] = x[i] + y[i]; element (r, c) of the tile of program p is number p * ROWS * COLS + r * COLS + c."""
    r = tl.arange(0, ROWS)
    c = tl.arange(0, COLS)
    start = tl.program_id(axis=0).to(tl.int64) * (ROWS * COLS)
    where = start + r[:, None] * COLS + c[None, :]
    if EVEN:
        tl.store(out_ptr + where, tl.load(x_ptr + where) + tl.load(y_ptr + where))
    else:
        keep = where < n
        x = tl.load(x_ptr + where, mask=keep)
        y = tl.load(y_ptr + where, mask=keep)
        tl.store(out_ptr + where, x + y, mask=keep)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.shape[0]
    if n != 0:
        tiles = triton.cdiv(n, ROWS * COLS)
        elementwise_add_kernel[(tiles,)](x, y, out, n, ROWS=ROWS, COLS=COLS)
    return out
