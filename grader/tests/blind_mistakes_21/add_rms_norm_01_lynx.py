# gpu-programming/triton-kernels/add_rms_norm.py | corner | add_rms_norm_kernel squares the sum in the dtype of the inputs (`squares += t * t`, t from added()); in fp16 a sum above 255 squares to inf and its row of out becomes 0 (tiny sums square to 0). It should be t.to(tl.float32) before the product. fp32, and fp16 of ordinary size, are right.
"""Residual addition and RMS normalisation, row by row, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in ((1024, 1), (1024, 4), (2048, 4), (4096, 4), (4096, 8), (8192, 8), (16384, 16))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def added(x_row, residual_row, cols, n_cols):
    """x + residual as it is stored, rounded once, and 0 past the end of the row."""
    inside = cols < n_cols
    x = tl.load(x_row + cols, mask=inside, other=0.0)
    residual = tl.load(residual_row + cols, mask=inside, other=0.0)
    return x + residual


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,
    eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i."""
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(TILES):
        t = added(x_row, residual_row, tile * TILE + cols, n_cols)
        squares += t * t
    r = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)

    for tile in range(TILES):
        here = tile * TILE + cols
        t = added(x_row, residual_row, here, n_cols)
        w = tl.load(weight_ptr + here, mask=here < n_cols, other=0.0).to(tl.float32)
        y = t.to(tl.float32) * r * w
        tl.store(total_row + here, t, mask=here < n_cols)
        tl.store(out_row + here, y.to(out_ptr.dtype.element_ty), mask=here < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    out = torch.empty_like(x) if out is None else out
    total = torch.empty_like(x) if total is None else total
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0),
        1e-5,
    )  # fmt: skip
    return out, total
