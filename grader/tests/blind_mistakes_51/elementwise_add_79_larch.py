# labs/lab1_elementwise_add/elementwise_add.py | error | In rows_for `min(MOST_ROWS, triton.cdiv(args["n"], LANES))` need not be a power of two, but is the length of `tl.arange(0, ROWS)`; it should be `min(MOST_ROWS, triton.next_power_of_2(triton.cdiv(args["n"], LANES)))`. Raises where cdiv(n, 64) is below 32 and no power of two, as n = 129 (3 rows) and n = 1536 (24 rows).
"""Add two vectors in tiles of 64 lanes; short vectors get tiles with fewer rows."""

import torch
import triton
import triton.language as tl

LANES = 64
MOST_ROWS = 32


def rows_for(args):
    """As many rows as the vector fills, 32 at most."""
    return min(MOST_ROWS, triton.cdiv(args["n"], LANES))


@triton.heuristics({"ROWS": rows_for})
@triton.jit
def rows_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    LANES: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Program pid owns ROWS rows of LANES neighbours, from element pid * ROWS * LANES on."""
    pid = tl.program_id(axis=0).to(tl.int64)
    rows = pid * ROWS + tl.arange(0, ROWS)
    offs = rows[:, None] * LANES + tl.arange(0, LANES)[None, :]
    exists = offs < n

    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    grid = lambda meta: (triton.cdiv(n, meta["ROWS"] * meta["LANES"]),)
    rows_add_kernel[grid](x, y, out, n, LANES=LANES, num_warps=4)
    return out
