# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | `root_mean_square` returns `tl.rsqrt(...)`, which is the inverse root, and `put` divides by it (`t.to(tl.float32) / rms * weight`): total is multiplied by its root mean square. Should be `tl.sqrt`, or a product in `put`. `out` is wrong in all cases, total is right.
"""Residual addition and RMS normalisation; a row of one tile stays in registers, a longer one is read twice."""

import torch
import triton
import triton.language as tl

EPS = 1e-5

CONFIGS = [
    triton.Config({"TILE": 1024}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=4),
    triton.Config({"TILE": 4096}, num_warps=4),
    triton.Config({"TILE": 4096}, num_warps=8),
    triton.Config({"TILE": 8192}, num_warps=8),
    triton.Config({"TILE": 8192}, num_warps=16),
    triton.Config({"TILE": 16384}, num_warps=16),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def add(x_row, residual_row, cols, n_cols):
    """The sum of both rows, rounded to their dtype, 0 past the end."""
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0)
    residual = tl.load(residual_row + cols, mask=cols < n_cols, other=0.0)
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)


@triton.jit
def root_mean_square(squares, n_cols, eps):
    """The root mean square of a row from its squares, lane by lane; eps keeps it away from 0."""
    return tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)


@triton.jit
def put(out_row, total_row, weight_ptr, t, rms, cols, n_cols):
    """Store a tile of the sum, and the same tile normalised and scaled."""
    inside = cols < n_cols
    weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    y = t.to(tl.float32) / rms * weight
    tl.store(total_row + cols, t, mask=inside)
    tl.store(out_row + cols, y.to(out_row.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i."""
    row, lanes = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    if TILES == 1:
        t = add(x_row, residual_row, lanes, n_cols)
        wide = t.to(tl.float32)
        rms = root_mean_square(wide * wide, n_cols, eps)
        put(out_row, total_row, weight_ptr, t, rms, lanes, n_cols)
    else:
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for start in range(0, n_cols, TILE):
            wide = add(x_row, residual_row, start + lanes, n_cols).to(tl.float32)
            squares += wide * wide
        rms = root_mean_square(squares, n_cols, eps)
        for start in range(0, n_cols, TILE):
            t = add(x_row, residual_row, start + lanes, n_cols)
            put(out_row, total_row, weight_ptr, t, rms, start + lanes, n_cols)


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
    strides = (x.stride(0), residual.stride(0), out.stride(0), total.stride(0))
    add_rms_norm_kernel[(n_rows,)](x, residual, weight, out, total, n_cols, *strides, EPS)
    return out, total
