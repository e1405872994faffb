# labs/lab1_elementwise_add/elementwise_add.py | right | The vector as sheets of (ROWS, COLS) elements: a 2-D grid whose blocks are numbered along both axes in int64, COLS from n by triton.heuristics, the grid as a function of meta, the sum in fp32 rounded once. Programs past the end are fully masked.
"""Add two vectors as if they were matrices: sheets of rows and columns, counted along two axes of the grid."""

import torch
import triton
import triton.language as tl

ROWS = 8
WIDEST = 512  # columns of a sheet
ABREAST = 1024  # programs along the first axis


@triton.jit
def wide_sum(a, b):
    """a + b in fp32, which rounds no fp16 or bf16 number on the way."""
    return a.to(tl.float32) + b.to(tl.float32)


@triton.heuristics({"COLS": lambda args: min(triton.next_power_of_2(args["n"]), WIDEST)})
@triton.jit
def sheet_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """out[i] = x[i] + y[i]; a program owns one sheet, ROWS rows of COLS elements that follow each other.

    The last programs of the second axis may own nothing: all of their elements lie past the end.
    """
    sheet = tl.program_id(axis=1).to(tl.int64) * tl.num_programs(axis=0) + tl.program_id(axis=0)
    down = sheet * ROWS + tl.arange(0, ROWS)
    across = tl.arange(0, COLS)
    offs = tl.expand_dims(down, 1) * COLS + tl.expand_dims(across, 0)
    exists = offs < n
    a = tl.load(x_ptr + offs, mask=exists)
    b = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, wide_sum(a, b).to(out_ptr.dtype.element_ty), mask=exists)


def grid_of(sheets: int):
    """ABREAST programs along the first axis, as many along the second as that needs."""
    return min(sheets, ABREAST), triton.cdiv(sheets, ABREAST)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = lambda meta: grid_of(triton.cdiv(n, meta["ROWS"] * meta["COLS"]))  # noqa: E731
        sheet_kernel[grid](x, y, out, n, ROWS=ROWS, num_warps=8)
    return out
