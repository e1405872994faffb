# gpu-programming/triton-kernels/add_rms_norm.py | two mistakes | (1) `squares += (total * total).to(tl.float32)` squares in the dtype of the inputs; it should be `total.to(tl.float32)` squared: in fp16 values above 255 overflow (values "far"), and `out` is 0. (2) `weight` is loaded before the loop with `lanes`, so all tiles use the weight of the first tile; it has to be loaded at `cols` in the second loop. Shows in rows longer than 16384, after column 16384.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl


def candidate(tile, per_thread):
    """A tile of this width, with so many numbers for each thread."""
    return triton.Config({"TILE": tile}, num_warps=tile // (32 * per_thread))


CONFIGS = [
    candidate(1024, 8),
    candidate(2048, 8),
    candidate(2048, 16),
    candidate(4096, 16),
    candidate(4096, 32),
    candidate(8192, 16),
    candidate(8192, 32),
    candidate(16384, 16),
    candidate(16384, 32),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles as wide as the row, as far as they go."""
    width = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if config.kwargs["TILE"] == width]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_cols, stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i."""
    row, lanes = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    # On its way while the sum of squares is computed.
    weight = tl.load(weight_ptr + lanes, mask=lanes < n_cols, other=0.0).to(tl.float32)

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(TILES):
        cols = tile * TILE + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0)
        residual = tl.load(residual_row + cols, mask=cols < n_cols, other=0.0)
        total = x + residual
        squares += (total * total).to(tl.float32)
    r = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)

    for tile in range(TILES):
        cols = tile * TILE + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0)
        residual = tl.load(residual_row + cols, mask=cols < n_cols, other=0.0)
        total = x + residual
        tl.store(total_row + cols, total, mask=cols < n_cols)
        normed = total.to(tl.float32) * r
        tl.store(out_row + cols, (normed * weight).to(out_ptr.dtype.element_ty), mask=cols < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty((n_rows, n_cols))
    if total is None:
        total = x.new_empty((n_rows, n_cols))
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total,
        n_cols, x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
