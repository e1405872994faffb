# gpu-programming/triton-kernels/add_rms_norm.py | corner | add_rms_norm_kernel loads the weight once, in front of the loop, at `cols`: each tile of a row of several tiles is scaled with the weight of the first tile. It should be loaded at `tile * TILE + cols` in the second loop. out is wrong from the second tile on, for rows longer than TILE (always beyond 16384 columns); total is right.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

EPS = 1e-5


def candidate(tile, warps):
    """A tile of this width for this number of warps."""
    return triton.Config({"TILE": tile}, num_warps=warps)


CONFIGS = [
    candidate(1024, 2),
    candidate(1024, 4),
    candidate(2048, 4),
    candidate(2048, 8),
    candidate(4096, 8),
    candidate(4096, 16),
    candidate(8192, 8),
    candidate(8192, 16),
    candidate(16384, 16),
    candidate(16384, 32),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def add_tile(x_row, residual_row, cols, n_cols):
    """x + residual at some columns, rounded as it is stored, and 0 past the end."""
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    return (x + residual).to(x_row.dtype.element_ty)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    weight_ptr,  # (n_cols,) like x
    out_ptr, total_ptr,  # (n_rows, n_cols) like x
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,  # elements from one row to the next
    eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i."""
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(TILES):
        t = add_tile(x_row, residual_row, tile * TILE + cols, n_cols).to(tl.float32)
        squares += t * t
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)

    for tile in range(TILES):
        offsets = tile * TILE + cols
        t = add_tile(x_row, residual_row, offsets, n_cols)
        y = t.to(tl.float32) * rstd * weight
        tl.store(total_row + offsets, t, mask=offsets < n_cols)
        tl.store(out_row + offsets, y.to(out_ptr.dtype.element_ty), mask=offsets < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    The results go to `out` and `total`, like x, where they are given; neither may share memory with an input,
    because the autotuner runs the kernel several times.
    """
    out = torch.empty_like(x) if out is None else out
    total = torch.empty_like(x) if total is None else total
    n_rows, n_cols = x.shape
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
