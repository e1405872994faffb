# gpu-programming/triton-kernels/add_rms_norm.py | right | right
"""Residual addition and RMSNorm: the tile follows from the row, and only the warps are tuned."""

import torch
import triton
import triton.language as tl

WIDEST = 16384
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (4, 8, 16)]


def tile_of(n_cols):
    """The columns that a program holds at once: the whole row, up to the widest tile."""
    return min(max(triton.next_power_of_2(n_cols), 1024), WIDEST)


def fitting(configs, named_args, **kwargs):
    """8 to 32 numbers of a tile for each thread."""
    tile = tile_of(named_args["n_cols"])
    return [config for config in configs if 8 <= tile // (32 * config.num_warps) <= 32]


@triton.jit
def add_tile(x_row, residual_row, cols, n_cols):
    """One tile of the sum, rounded as it is stored, and 0 past the end of the row."""
    inside = cols < n_cols
    x = tl.load(x_row + cols, mask=inside, other=0.0)
    residual = tl.load(residual_row + cols, mask=inside, other=0.0)
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)


@triton.jit
def put_tile(out_row, total_row, weight_ptr, total, rstd, cols, n_cols):
    """Both results of a tile."""
    inside = cols < n_cols
    weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    normed = total.to(tl.float32) * rstd * weight
    tl.store(total_row + cols, total, mask=inside)
    tl.store(out_row + cols, normed.to(total.dtype), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics(
    {"TILE": lambda args: tile_of(args["n_cols"]), "WHOLE": lambda args: args["n_cols"] <= WIDEST}
)
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,
    eps,
    TILE: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Program i owns row i. A row that is WHOLE in one tile stays in registers between sum and results."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, TILE)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total

    if WHOLE:
        total = add_tile(x_row, residual_row, cols, n_cols)
        wide = total.to(tl.float32)
        rstd = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / n_cols + eps)
        put_tile(out_row, total_row, weight_ptr, total, rstd, cols, n_cols)
    else:
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for start in range(0, n_cols, TILE):
            part = add_tile(x_row, residual_row, start + cols, n_cols).to(tl.float32)
            squares += part * part
        rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)
        for start in range(0, n_cols, TILE):
            again = add_tile(x_row, residual_row, start + cols, n_cols)
            put_tile(out_row, total_row, weight_ptr, again, rstd, start + cols, n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """out and total: x + residual, and its rows divided by their root mean square, times weight."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows, n_cols = x.shape
    strides = [tensor.stride(0) for tensor in (x, residual, out, total)]
    add_rms_norm_kernel[(rows,)](x, residual, weight, out, total, n_cols, *strides, 1e-5)
    return out, total
