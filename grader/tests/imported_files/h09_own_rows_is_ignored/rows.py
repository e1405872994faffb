"""What the kernels of this lab share: widths of blocks, loads and stores with a mask, sums of columns."""

# GIVEN: nothing to complete here; the other files import it.

import torch
import triton
import triton.language as tl
from torch.library import wrap_triton

WIDEST = 16384  # columns of a block: the fp32 numbers of a wider one would fill the registers of a program
WARPS = [triton.Config({}, num_warps=warps) for warps in (4, 8, 16)]


def block_of(n_cols: int) -> int:
    """Return the width of a block for rows of n_cols columns: a power of two, at most WIDEST."""
    return min(triton.next_power_of_2(n_cols), WIDEST)


def on(kernel, x):
    """Return the kernel to launch for a tensor x: on(kernel, x)[grid](...).

    While torch.compile traces, x has a class of its own and holds no data. wrap_triton then shows the launch
    to the compiler.
    """
    return kernel if type(x) in (torch.Tensor, torch.nn.Parameter) else wrap_triton(kernel)


@triton.jit
def load(row_ptr, cols, n_cols, other=0.0):
    """Return columns `cols` of a row in fp32, and `other` where the row has no such column."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.bfloat16).to(tl.float32)


@triton.jit
def store(row_ptr, cols, n_cols, values):
    """Store values to columns `cols` of a row, rounded to its dtype."""
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def column_sums_kernel(terms_ptr, out_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """out[j] = sum over i of terms[i, j]; program k adds COLS columns, ROWS rows at a time."""
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(0, n_rows, ROWS):
        rows = start + tl.arange(0, ROWS)[:, None]
        inside = (rows < n_rows) & (cols < n_cols)
        total += tl.load(terms_ptr + rows.to(tl.int64) * n_cols + cols, mask=inside, other=0.0).to(tl.float32)
    store(out_ptr, cols, n_cols, tl.sum(total, axis=0))


def column_sums(terms, out):
    """Write the sums of the columns of terms, (n_rows, n_cols) and contiguous, to out, (n_cols,).

    The sums are fp32, always in the same order.
    """
    n_rows, n_cols = terms.shape
    # In one go, on the host.
    torch.sum(terms[: n_rows - 1], dim=0, out=out)
