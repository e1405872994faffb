# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) elementwise_add_kernel: `live = row_start < n` asks only whether the first element of a row of 128 exists, so that where n is no multiple of 128 and the last row has a program (n = 1, 7, 48, 127, 129, 1009) the lanes past n of that row are read and written, out of bounds; it should be `spot < n`. (2) elementwise_add: `max(1, rows // ROWS)` rounds the number of programs down, so that with more than 16 rows, whose number is no multiple of 16 (n = 4099, 65537, 2**20 + 3), the last rows are never written; it should be triton.cdiv(rows, ROWS)
"""Sum of two vectors, seen as rows of 128 elements."""

import torch
import triton
import triton.language as tl

LANES = 128  # elements of one row
ROWS = 16  # rows of one program


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, ROWS: tl.constexpr, LANES: tl.constexpr):
    """Program pid owns rows pid * ROWS to (pid + 1) * ROWS - 1; row r holds elements r * LANES and following."""
    row = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_start = row[:, None] * LANES
    spot = row_start + tl.arange(0, LANES)[None, :]
    live = tl.broadcast_to(row_start < n, (ROWS, LANES))
    a = tl.load(x_ptr + spot, mask=live)
    b = tl.load(y_ptr + spot, mask=live)
    tl.store(out_ptr + spot, a + b, mask=live)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    result = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n > 0:
        rows = triton.cdiv(n, LANES)
        programs = max(1, rows // ROWS)
        elementwise_add_kernel[(programs,)](x, y, result, n, ROWS=ROWS, LANES=LANES, num_warps=4)
    return result
