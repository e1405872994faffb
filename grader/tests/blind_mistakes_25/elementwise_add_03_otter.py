# labs/lab1_elementwise_add/elementwise_add.py | error | elementwise_add_kernel, `tl.store(out_ptr + spot, flat, ...)`: flat was reshaped to (ROWS * COLS,) while the pointers and the mask are a (ROWS, COLS) tile, so the shapes cannot be broadcast: ValueError in the interpreter, compile error on a GPU, for every n > 0. The (ROWS, COLS) tile `total` should be stored without the reshape.
"""Add two vectors, a tile of 8 x 128 numbers at a time."""

import torch
import triton
import triton.language as tl

ROWS = 8
COLS = 128


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    """out[i] = x[i] + y[i]: the vectors are seen as lines of COLS numbers, ROWS lines for each program."""
    corner = tl.program_id(axis=0).to(tl.int64) * (ROWS * COLS)
    line = tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLS)[None, :]
    spot = corner + line * COLS + column
    exists = spot < n

    total = tl.load(x_ptr + spot, mask=exists) + tl.load(y_ptr + spot, mask=exists)

    # out is a vector.
    flat = tl.reshape(total, (ROWS * COLS,))
    tl.store(out_ptr + spot, flat, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    tiles = triton.cdiv(n, ROWS * COLS)
    if tiles:
        elementwise_add_kernel[(tiles,)](x, y, out, n, ROWS=ROWS, COLS=COLS)
    return out
