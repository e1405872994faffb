# labs/lab1_elementwise_add/elementwise_add.py | right | Nothing is wrong. Unusual: a two-dimensional tile (4 x 512) in place of a block, and two launches of one kernel by `divmod(n, ROWS * COLS)`: all whole tiles without any mask (`WHOLE=True`), then one program with a mask for the rest; each launch is left out where it has nothing to do, so n = 0 launches nothing.
"""Add two vectors: whole tiles are added without any mask, and the rest of the vector has a launch of its own."""

import torch
import triton
import triton.language as tl

ROWS = 4  # a tile is ROWS lines of COLS neighbours each
COLS = 512


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    first_tile,  # number of the tile of program 0
    n,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns the ROWS * COLS elements of tile first_tile + pid.

    With WHOLE all elements of the tile exist.
    """
    tile = tl.program_id(axis=0).to(tl.int64) + first_tile
    base = tile * (ROWS * COLS)
    inner = tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :]
    offs = base + inner
    if WHOLE:
        total = tl.load(x_ptr + offs) + tl.load(y_ptr + offs)
        tl.store(out_ptr + offs, total)
    else:
        exists = offs < n
        total = tl.load(x_ptr + offs, mask=exists) + tl.load(y_ptr + offs, mask=exists)
        tl.store(out_ptr + offs, total, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    whole, rest = divmod(n, ROWS * COLS)
    if whole:
        elementwise_add_kernel[(whole,)](x, y, out, 0, n, ROWS=ROWS, COLS=COLS, WHOLE=True)
    if rest:
        elementwise_add_kernel[(1,)](x, y, out, whole, n, ROWS=ROWS, COLS=COLS, WHOLE=False)
    return out
