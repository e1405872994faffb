# gpu-programming/triton-kernels/add_rms_norm.py | right | Two-dimensional tiles of several short rows or one long one, the row of one tile kept in registers by a constexpr branch, the second sweep of longer rows goes backwards over the tiles. Nothing is wrong.
"""Residual addition and RMSNorm of the sum: a program owns a few short rows or one long one, autotuned."""

import torch
import triton
import triton.language as tl

# (rows, columns of a tile, warps): 8 to 32 numbers for each thread, and at least 8 of the weight.
SHAPES = (
    (2, 1024, 4),
    (4, 1024, 4),
    (2, 2048, 8),
    (1, 2048, 4),
    (1, 4096, 4),
    (1, 4096, 8),
    (1, 8192, 8),
    (1, 16384, 16),
    (1, 16384, 32),
)
CONFIGS = [triton.Config({"ROWS": rows, "TILE": tile}, num_warps=warps) for rows, tile, warps in SHAPES]


def fitting(configs, named_args, **kwargs):
    """The narrowest tiles that hold a row; for longer rows the widest tiles."""
    widths = [config.kwargs["TILE"] for config in configs]
    enough = [width for width in widths if width >= named_args["n_cols"]]
    width = min(enough or [max(widths)])
    return [config for config in configs if config.kwargs["TILE"] == width]


@triton.jit
def sum_of(x_at, residual_at, cols, inside):
    """x + residual, rounded to the dtype as it is stored; 0 outside."""
    x = tl.load(x_at + cols, mask=inside, other=0.0)
    residual = tl.load(residual_at + cols, mask=inside, other=0.0)
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x_at.dtype.element_ty)


@triton.jit
def rstd_of(squares, n_cols, eps):
    """One number for each row of a tile of squares, as a column."""
    mean = tl.sum(squares, axis=1, keep_dims=True) / n_cols
    return 1.0 / tl.sqrt(mean + eps)


@triton.jit
def put(total, rstd, weight_ptr, out_at, total_at, cols, n_cols, inside):
    """Store the sum as it is, and the same scaled by rstd and weight."""
    weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(total_at + cols, total, mask=inside)
    y = total.to(tl.float32) * rstd * weight
    tl.store(out_at + cols, y.to(out_at.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_rows, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps,
    ROWS: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Program i owns rows i * ROWS to i * ROWS + ROWS - 1; a row has TILES tiles of TILE columns.

    Rows lie along axis 0 of a tile, columns along axis 1. With one tile the sum is kept from norm to store.
    """
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, TILE)[None, :]
    exists = rows < n_rows
    far = rows.to(tl.int64)
    x_at, residual_at = x_ptr + far * stride_x, residual_ptr + far * stride_residual
    out_at, total_at = out_ptr + far * stride_out, total_ptr + far * stride_total

    if TILES == 1:
        inside = exists & (lanes < n_cols)
        total = sum_of(x_at, residual_at, lanes, inside)
        wide = total.to(tl.float32)
        rstd = rstd_of(wide * wide, n_cols, eps)
        put(total, rstd, weight_ptr, out_at, total_at, lanes, n_cols, inside)
    else:
        squares = tl.zeros((ROWS, TILE), dtype=tl.float32)
        for i in range(TILES):
            cols = i * TILE + lanes
            wide = sum_of(x_at, residual_at, cols, exists & (cols < n_cols)).to(tl.float32)
            squares += wide * wide
        rstd = rstd_of(squares, n_cols, eps)
        # The last tile was read last, so it is the first one that a cache still has.
        for i in range(TILES):
            cols = (TILES - 1 - i) * TILE + lanes
            inside = exists & (cols < n_cols)
            total = sum_of(x_at, residual_at, cols, inside)
            put(total, rstd, weight_ptr, out_at, total_at, cols, n_cols, inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """total = x + residual and out = total / sqrt(mean(total * total) + 1e-5) * weight, row by row.

    x and residual are (n_rows, n_cols) of one dtype with contiguous columns, weight is (n_cols,). Returns out
    and total, where they are given, or new contiguous matrices.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    if total is None:
        total = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)

    def grid(meta):
        return (triton.cdiv(n_rows, meta["ROWS"]),)

    add_rms_norm_kernel[grid](
        x, residual, weight, out, total, n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
