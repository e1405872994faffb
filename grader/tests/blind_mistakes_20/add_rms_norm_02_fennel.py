# gpu-programming/triton-kernels/add_rms_norm.py | right | right
"""Addition and RMSNorm: forward through the row for the squares, then backward through it for the results.

The tile that the first sweep added last is still in registers when the second sweep begins, so it begins there, and the
tiles that follow are those that were read most recently.
"""

import torch
import triton
import triton.language as tl

EPS = 1e-5

CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=tile // per_warp)
    for tile in (1024, 2048, 4096, 8192)
    for per_warp in (256, 512, 1024)
    if tile // per_warp <= 16
]


def fitting(configs, named_args, **kwargs):
    """Tiles as wide as the row where there are such ones, else the nearest width."""
    size = triton.next_power_of_2(named_args["n_cols"])
    size = 1024 if size < 1024 else min(size, 8192)
    return [config for config in configs if config.kwargs["TILE"] == size]


@triton.jit
def added(x_row, residual_row, cols, n_cols):
    """The sum in the dtype of the tensors; 0 past the end."""
    exists = cols < n_cols
    x = tl.load(x_row + cols, mask=exists, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=exists, other=0.0).to(tl.float32)
    return (x + residual).to(x_row.dtype.element_ty)


@triton.jit
def finish(total, r, weight_ptr, out_row, total_row, cols, n_cols):
    """Store a tile of both results."""
    exists = cols < n_cols
    weight = tl.load(weight_ptr + cols, mask=exists, other=0.0).to(tl.float32)
    out = total.to(tl.float32) * r * weight
    tl.store(total_row + cols, total, mask=exists)
    tl.store(out_row + cols, out.to(out_row.dtype.element_ty), mask=exists)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"LAST": lambda args: (args["n_cols"] - 1) // args["TILE"]})
@triton.jit
def add_rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    total_ptr,
    n_cols,
    stride_x,
    stride_residual,
    stride_out,
    stride_total,
    eps,
    TILE: tl.constexpr,
    LAST: tl.constexpr,
):
    """Program i owns row i, whose tiles have the numbers 0 to LAST."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, TILE)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for k in range(LAST):
        early = added(x_row, residual_row, k * TILE + lanes, n_cols).to(tl.float32)
        squares += early * early
    held = added(x_row, residual_row, LAST * TILE + lanes, n_cols)
    squares += held.to(tl.float32) * held.to(tl.float32)
    r = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)

    finish(held, r, weight_ptr, out_row, total_row, LAST * TILE + lanes, n_cols)
    for back in range(LAST):
        cols = (LAST - 1 - back) * TILE + lanes
        again = added(x_row, residual_row, cols, n_cols)
        finish(again, r, weight_ptr, out_row, total_row, cols, n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """total = x + residual and out = its RMSNorm; returned as out, total, and written there where they are given."""
    n_rows, n_cols = x.shape
    out = x.new_empty((n_rows, n_cols)) if out is None else out
    total = x.new_empty((n_rows, n_cols)) if total is None else total
    add_rms_norm_kernel[(n_rows,)](
        x,
        residual,
        weight,
        out,
        total,
        n_cols,
        x.stride(0),
        residual.stride(0),
        out.stride(0),
        total.stride(0),
        EPS,
    )
    return out, total
