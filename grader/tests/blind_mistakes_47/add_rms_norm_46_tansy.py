# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | In `_inverse_root`, `tl.rsqrt(squares / n_cols + eps)` divides once more by n_cols what `_extend` has already made a mean; as it is called, `scale = _inverse_root(square, n_cols, eps)`, it should be `tl.rsqrt(squares + eps)`. `out` is too large by about sqrt(n_cols) in all cases but n_cols = 1; `total` is right.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

EPS = 1e-5


def _config(tile, num_warps):
    """A tile of 8 to 32 numbers for each thread."""
    return triton.Config({"TILE": tile}, num_warps=num_warps)


CONFIGS = [
    _config(1024, 4),
    _config(2048, 4),
    _config(2048, 8),
    _config(4096, 8),
    _config(8192, 8),
    _config(8192, 16),
    _config(16384, 16),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def _added(x_row, residual_row, cols, n_cols):
    """One tile of x + residual, rounded as it is stored and back in fp32; 0 past the end of the row."""
    exists = cols < n_cols
    x = tl.load(x_row + cols, mask=exists, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=exists, other=0.0).to(tl.float32)
    return (x + residual).to(x_row.dtype.element_ty).to(tl.float32)


@triton.jit
def _extend(mean, seen, tile_sum, width):
    """The mean of seen + width numbers, from that of the first `seen` and the sum of the other ones."""
    seen += width
    mean += (tile_sum - width * mean) / seen
    return mean, seen


@triton.jit
def _inverse_root(squares, n_cols, eps):
    return tl.rsqrt(squares / n_cols + eps)


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
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i.

    The squares enter a running mean, tile by tile, which stays of the size of one square however long the row is.
    """
    row, lanes = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total

    square = 0.0
    seen = 0
    for tile in range(TILES):
        cols = tile * TILE + lanes
        total = _added(x_row, residual_row, cols, n_cols)
        width = tl.minimum(n_cols - tile * TILE, TILE)
        square, seen = _extend(square, seen, tl.sum(total * total, axis=0), width)
    scale = _inverse_root(square, n_cols, eps)

    for tile in range(TILES):
        cols = tile * TILE + lanes
        exists = cols < n_cols
        total = _added(x_row, residual_row, cols, n_cols)
        weight = tl.load(weight_ptr + cols, mask=exists, other=0.0).to(tl.float32)
        tl.store(total_row + cols, total.to(total_ptr.dtype.element_ty), mask=exists)
        tl.store(out_row + cols, (total * scale * weight).to(out_ptr.dtype.element_ty), mask=exists)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), EPS,
    )  # fmt: skip
    return out, total
