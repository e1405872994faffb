# gpu-programming/triton-kernels/add_rms_norm.py | right | right
"""x + residual and its RMSNorm. A row of one tile stays in registers; a longer one is read again from its end."""

import torch
import triton
import triton.language as tl

EPS = 1e-5
CONFIGS = [
    triton.Config({"TILE": 32 * warps * each}, num_warps=warps)
    for warps, each in ((4, 8), (8, 8), (4, 16), (16, 8), (8, 16), (16, 16), (8, 32), (32, 16), (16, 32))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def add(x_row, residual_row, cols, mask):
    """The sum as it is stored, in the dtype of x."""
    x = tl.load(x_row + cols, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=mask, other=0.0).to(tl.float32)
    return (x + residual).to(x_row.dtype.element_ty)


@triton.jit
def finish(total, r, weight_ptr, out_row, total_row, cols, mask):
    """Store one tile of both results."""
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(total_row + cols, total, mask=mask)
    normed = (total.to(tl.float32) * r) * weight
    tl.store(out_row + cols, normed.to(out_row.dtype.element_ty), mask=mask)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr,
    stride_x,
    residual_ptr,
    stride_residual,
    weight_ptr,
    out_ptr,
    stride_out,
    total_ptr,
    stride_total,
    n_cols,
    eps,
    TILE: tl.constexpr,
    TILES: tl.constexpr,
):
    """Both results for row i by program i."""
    i = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + i * stride_x
    residual_row = residual_ptr + i * stride_residual
    out_row = out_ptr + i * stride_out
    total_row = total_ptr + i * stride_total
    lanes = tl.arange(0, TILE)

    if TILES == 1:
        mask = lanes < n_cols
        total = add(x_row, residual_row, lanes, mask)
        wide = total.to(tl.float32)
        r = tl.rsqrt(tl.sum(wide * wide, axis=0) / n_cols + eps)
        finish(total, r, weight_ptr, out_row, total_row, lanes, mask)
    else:
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for tile in range(0, TILES):
            cols = tile * TILE + lanes
            wide = add(x_row, residual_row, cols, cols < n_cols).to(tl.float32)
            squares += wide * wide
        r = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)
        for turn in range(0, TILES):
            cols = (TILES - 1 - turn) * TILE + lanes
            mask = cols < n_cols
            total = add(x_row, residual_row, cols, mask)
            finish(total, r, weight_ptr, out_row, total_row, cols, mask)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """out and total, in this order, for x and residual (n_rows, n_cols) and weight (n_cols,).

    They are written where they are given. Rows of the four matrices may be any number of elements apart.
    """
    n_rows, n_cols = x.shape
    if total is None:
        total = x.new_empty((n_rows, n_cols))
    if out is None:
        out = x.new_empty((n_rows, n_cols))
    add_rms_norm_kernel[(n_rows,)](
        x,
        x.stride(0),
        residual,
        residual.stride(0),
        weight,
        out,
        out.stride(0),
        total,
        total.stride(0),
        n_cols,
        EPS,
    )
    return out, total
