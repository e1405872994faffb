# gpu-programming/triton-kernels/add_rms_norm.py | two mistakes | (1) in add_rms_norm, the launch passes total.stride(0) before out.stride(0), but the kernel takes stride_out, then stride_total: out is stored with the row stride of total and total with that of out, wrong in all rows but the first wherever the two strides differ (one of them padded or far), and right where they are alike; it should be out.stride(0), total.stride(0). (2) EPSILON is 1e-6, the README asks for 1e-5: out is too large in rows whose mean square is not far above 1e-5 (inputs near 0.001), and right within the tolerance elsewhere
"""Residual addition and RMS normalisation, one program a row, a row in TILES tiles."""

import torch
import triton
import triton.language as tl

EPSILON = 1e-6

CONFIGS = [triton.Config({"TILE": 1024 << i}, num_warps=(4, 4, 8, 8, 16)[i]) for i in range(5)]


def fitting(configs, named_args, **kwargs):
    """A whole row in a tile where one is wide enough, or half of it."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


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
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight."""
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(TILES):
        at = tile * TILE + cols
        x = tl.load(x_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        squares += (x + residual) * (x + residual)
    r = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)

    for tile in range(TILES):
        at = tile * TILE + cols
        x = tl.load(x_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
        tl.store(total_row + at, x + residual, mask=at < n_cols)
        tl.store(out_row + at, (x + residual) * r * weight, mask=at < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """The normed sum and the sum itself, in `out` and `total` where they are given."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if total is None:
        total = torch.empty_like(x, memory_format=torch.contiguous_format)
    add_rms_norm_kernel[(x.size(0),)](
        x, residual, weight, out, total, x.size(1),
        x.stride(0), residual.stride(0), total.stride(0), out.stride(0), EPSILON,
    )  # fmt: skip
    return out, total
