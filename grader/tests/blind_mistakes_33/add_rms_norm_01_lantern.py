# gpu-programming/triton-kernels/add_rms_norm.py | right | right
"""x + residual and its RMS norm: the first tile of a row stays in registers, the others are read twice."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (8192, 8), (8192, 16), (16384, 16))
]


def fitting(configs, named_args, **kwargs):
    """A tile for the whole row where there is one, and the next smaller ones."""
    whole = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if config.kwargs["TILE"] in (whole, whole // 2)]


@triton.jit
def add(x_row, residual_row, cols, n_cols):
    """The sum as it is stored, in the dtype of x; 0 past the end of the row."""
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    return (x + residual).to(x_row.dtype.element_ty)


@triton.jit
def square_sum(total):
    wide = total.to(tl.float32)
    return tl.sum(wide * wide, axis=0)


@triton.jit
def emit(total, factor, weight_ptr, out_row, total_row, cols, n_cols):
    """Both results of one tile."""
    weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    normed = total.to(tl.float32) * factor * weight
    tl.store(total_row + cols, total, mask=cols < n_cols)
    tl.store(out_row + cols, normed.to(out_row.dtype.element_ty), mask=cols < n_cols)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps, TILE: tl.constexpr,
):  # fmt: skip
    """Program i owns row i; both loops are empty where the row fits one tile."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total

    head = tl.arange(0, TILE)
    kept = add(x_row, residual_row, head, n_cols)
    squares = square_sum(kept)
    for start in range(TILE, n_cols, TILE):
        squares += square_sum(add(x_row, residual_row, start + head, n_cols))
    factor = tl.rsqrt(squares / n_cols + eps)

    emit(kept, factor, weight_ptr, out_row, total_row, head, n_cols)
    for start in range(TILE, n_cols, TILE):
        cols = start + head
        again = add(x_row, residual_row, cols, n_cols)
        emit(again, factor, weight_ptr, out_row, total_row, cols, n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, total): the normalised rows of x + residual, times weight, and x + residual itself."""
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty((n_rows, n_cols))
    if total is None:
        total = x.new_empty((n_rows, n_cols))
    strides = [tensor.stride(0) for tensor in (x, residual, out, total)]
    add_rms_norm_kernel[(n_rows,)](x, residual, weight, out, total, n_cols, *strides, 1e-5)
    return out, total
