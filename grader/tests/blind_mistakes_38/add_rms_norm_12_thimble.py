# gpu-programming/triton-kernels/add_rms_norm.py | right | right
"""Residual addition and RMSNorm: the last tile of a row stays in registers, so a row of one tile is read once."""

import torch
import triton
import triton.language as tl

# (warps, numbers of a thread): one load of 16 bytes for each tensor in 16 bits, two, or four.
SHARES = ((4, 8), (4, 16), (4, 32), (8, 16), (8, 32), (16, 16), (16, 32))
CONFIGS = [triton.Config({"TILE": 32 * warps * share}, num_warps=warps) for warps, share in SHARES]


def fitting(configs, named_args, **kwargs):
    """The tiles next to the row's length: the first that holds it, and half of that; the widest for long rows."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if config.kwargs["TILE"] in (size, size // 2)]


@triton.jit
def added(x_row, residual_row, cols, n_cols):
    """x + residual in the dtype of x, 0 past the end of the row."""
    inside = cols < n_cols
    x = tl.load(x_row + cols, mask=inside, other=0.0)
    residual = tl.load(residual_row + cols, mask=inside, other=0.0)
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)


@triton.jit
def finish(total, rstd, weight_ptr, out_row, total_row, cols, n_cols):
    """Store one tile of both results."""
    inside = cols < n_cols
    weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(total_row + cols, total, mask=inside)
    tl.store(out_row + cols, (total.to(tl.float32) * rstd * weight).to(total.dtype), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Program i owns row i, of TILES tiles; what is normalised is the rounded sum."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    cols = tl.arange(0, TILE)
    last = (TILES - 1) * TILE + cols

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(TILES - 1):
        passing = added(x_row, residual_row, tile * TILE + cols, n_cols).to(tl.float32)
        squares += passing * passing
    kept = added(x_row, residual_row, last, n_cols)
    squares += kept.to(tl.float32) * kept.to(tl.float32)
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)

    finish(kept, rstd, weight_ptr, out_row, total_row, last, n_cols)
    for tile in range(TILES - 1):
        here = tile * TILE + cols
        again = added(x_row, residual_row, here, n_cols)
        finish(again, rstd, weight_ptr, out_row, total_row, here, n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual over its root mean square, times weight, and x + residual itself: out and total."""
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty((n_rows, n_cols))
    if total is None:
        total = x.new_empty((n_rows, n_cols))
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
