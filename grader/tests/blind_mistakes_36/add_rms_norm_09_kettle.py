# gpu-programming/triton-kernels/add_rms_norm.py | right | right
"""Residual addition and RMSNorm. The head of a row, all of a usual row, stays in registers; only a tail is read twice."""

import torch
import triton
import triton.language as tl

# Numbers for each thread, from one load of 16 bytes in 16 bits up to what registers hold.
SHAPES = {1024: (1, 2, 4), 2048: (2, 4, 8), 4096: (4, 8, 16), 8192: (8, 16), 16384: (16, 32)}
CONFIGS = [triton.Config({"TILE": tile}, num_warps=warps) for tile, choices in SHAPES.items() for warps in choices]


def fitting(configs, named_args, **kwargs):
    """The configs whose tile is the narrowest that holds the row, or else the widest of all."""
    widths = sorted({config.kwargs["TILE"] for config in configs})
    holding = [width for width in widths if width >= named_args["n_cols"]]
    best = holding[0] if holding else widths[-1]
    return [config for config in configs if config.kwargs["TILE"] == best]


@triton.jit
def add(x_row, residual_row, cols, n_cols):
    """x + residual in the dtype of x, and 0 past the end."""
    inside = cols < n_cols
    x = tl.load(x_row + cols, mask=inside, other=0.0)
    residual = tl.load(residual_row + cols, mask=inside, other=0.0)
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)


@triton.jit
def put(out_row, weight_ptr, total, rstd, cols, n_cols):
    inside = cols < n_cols
    weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    normed = total.to(tl.float32) * rstd * weight
    tl.store(out_row + cols, normed.to(total.dtype), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,
    eps,
    TILE: tl.constexpr,
):  # fmt: skip
    """Program i owns row i: its first TILE columns, and then the others in steps of TILE."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    lanes = tl.arange(0, TILE)

    front = add(x_row, residual_row, lanes, n_cols)
    tl.store(total_row + lanes, front, mask=lanes < n_cols)
    wide = front.to(tl.float32)
    squares = wide * wide
    for start in range(TILE, n_cols, TILE):
        cols = start + lanes
        more = add(x_row, residual_row, cols, n_cols)
        tl.store(total_row + cols, more, mask=cols < n_cols)
        squares += more.to(tl.float32) * more.to(tl.float32)

    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)

    put(out_row, weight_ptr, front, rstd, lanes, n_cols)
    for start in range(TILE, n_cols, TILE):
        cols = start + lanes
        put(out_row, weight_ptr, add(x_row, residual_row, cols, n_cols), rstd, cols, n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    results = []
    for given in (out, total):
        results.append(x.new_empty(x.shape) if given is None else given)
    out, total = results
    n_rows, n_cols = x.shape
    rows = [tensor.stride(0) for tensor in (x, residual, out, total)]
    add_rms_norm_kernel[(n_rows,)](x, residual, weight, out, total, n_cols, *rows, 1e-5)
    return out, total
