# gpu-programming/triton-kernels/add_rms_norm.py | contract | put, called by add_rms_norm_kernel for both results, stores up to `end`, the width rounded up to a multiple of 8 as far as the row stride allows, and not up to n_cols: where rows of out or total are further apart than n_cols and n_cols is no multiple of 8, up to 7 zeros go to the space between rows (and, after the last row, past the end of the matrix), which the README forbids; all numbers of the results are right; the mask should be cols < n_cols
"""Residual addition and RMSNorm; the second pass goes back from the end of the row, which is still in L2."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": 1024}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=4),
    triton.Config({"TILE": 4096}, num_warps=8),
    triton.Config({"TILE": 8192}, num_warps=8),
    triton.Config({"TILE": 16384}, num_warps=16),
]


def fitting(configs, named_args, **kwargs):
    """One or two tiles a row, as long as the widest tile allows it."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def get(row_ptr, cols, n_cols):
    """Columns of a row in fp32, 0 past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.jit
def put(row_ptr, cols, n_cols, stride, values):
    """Store columns of a row, rounded to its dtype, in stores of 16 bytes where the row allows them."""
    end = tl.maximum(n_cols, tl.minimum(stride, tl.cdiv(n_cols, 8) * 8))
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < end)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total, EPS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Program i owns row i: the sum of squares first, then the results from the last tile to the first."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total
    lanes = tl.arange(0, TILE)
    tiles = tl.cdiv(n_cols, TILE)

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for i in range(0, tiles):
        cols = i * TILE + lanes
        total = get(x_row, cols, n_cols) + get(residual_row, cols, n_cols)
        squares += total * total
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + EPS)

    for i in range(0, tiles):
        cols = (tiles - 1 - i) * TILE + lanes
        total = get(x_row, cols, n_cols) + get(residual_row, cols, n_cols)
        put(total_row, cols, n_cols, stride_total, total)
        put(out_row, cols, n_cols, stride_out, total * rstd * get(weight_ptr, cols, n_cols))


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """The norm of x + residual, times weight, and x + residual; each into the tensor that is given for it."""
    n_rows, n_cols = x.shape
    out = x.new_empty((n_rows, n_cols)) if out is None else out
    total = x.new_empty((n_rows, n_cols)) if total is None else total
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), EPS=1e-5,
    )  # fmt: skip
    return out, total
