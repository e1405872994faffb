# gpu-programming/triton-kernels/add_rms_norm.py | contract | `torch.empty_strided(x.shape, x.stride(), ...)` for `total` in `add_rms_norm`: without `total=` the README asks for a new contiguous tensor. Where the rows of x are padded, the returned total has gaps between rows, too; the numbers are right.
"""Residual addition and RMSNorm: tiles of several short rows, or of a part of one long row."""

import torch
import triton
import triton.language as tl

EPSILON = 1e-5
NARROWEST, WIDEST = 64, 4096  # columns of a tile

# The tile follows from the row, so that only the number of threads is left to try: 8 to 32 columns for
# each of them where rows have 4096 columns.
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (4, 8, 16)]


def width_of(args):
    """Columns of a tile: the whole row, if it is not too long."""
    return min(max(triton.next_power_of_2(args["n_cols"]), NARROWEST), WIDEST)


def height_of(args):
    """Rows of a tile: as many as make 1024 elements."""
    return max(1024 // width_of(args), 1)


@triton.autotune(configs=CONFIGS, key=["n_cols"])
@triton.heuristics({"COLS": width_of, "ROWS": height_of})
@triton.jit
def add_rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    total_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_residual,
    stride_out,
    stride_total,
    eps,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Program i owns ROWS rows, from row i * ROWS on, and takes COLS columns of them at a time."""
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)[:, None]
    exists = rows < n_rows
    far = rows.to(tl.int64)
    lanes = tl.arange(0, COLS)[None, :]
    x_rows, residual_rows = x_ptr + far * stride_x, residual_ptr + far * stride_residual
    out_rows, total_rows = out_ptr + far * stride_out, total_ptr + far * stride_total
    dtype = total_ptr.dtype.element_ty

    squares = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + lanes
        inside = exists & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_rows + cols, mask=inside, other=0.0).to(tl.float32)
        total = (x + residual).to(dtype).to(tl.float32)
        squares += total * total

    mean = tl.sum(squares, axis=1, keep_dims=True) / n_cols
    rstd = tl.rsqrt(mean + eps)

    for start in range(0, n_cols, COLS):
        cols = start + lanes
        inside = exists & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_rows + cols, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        rounded = (x + residual).to(dtype)
        tl.store(total_rows + cols, rounded, mask=inside)
        tl.store(out_rows + cols, (rounded.to(tl.float32) * rstd * weight).to(dtype), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype with contiguous columns, weight is (n_cols,).
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if total is None:
        # The next layer takes total where it took x.
        total = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)

    def grid(meta):
        return (triton.cdiv(n_rows, height_of({"n_cols": n_cols})),)

    add_rms_norm_kernel[grid](
        x,
        residual,
        weight,
        out,
        total,
        n_rows,
        n_cols,
        x.stride(0),
        residual.stride(0),
        out.stride(0),
        total.stride(0),
        EPSILON,
    )
    return out, total
