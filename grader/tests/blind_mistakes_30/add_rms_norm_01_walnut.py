# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | In add_rms_norm_kernel the normalised row is multiplied by (1.0 + weight), as some models store their weight, instead of by weight. out is wrong in every case (by the normalised row itself), total is right. It should be total * r * weight.
"""Residual addition and RMSNorm of the sum, a program a row."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in (
        (1024, 4),
        (2048, 4),
        (2048, 8),
        (4096, 8),
        (4096, 16),
        (8192, 8),
        (8192, 16),
        (16384, 16),
        (16384, 32),
    )
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,
    eps,
    TILE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, TILE)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total

    acc = tl.zeros((TILE,), dtype=tl.float32)
    for first in range(0, n_cols, TILE):
        cols = first + lane
        live = cols < n_cols
        x = tl.load(x_row + cols, mask=live, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + cols, mask=live, other=0.0).to(tl.float32)
        total = (x + residual).to(total_ptr.dtype.element_ty).to(tl.float32)
        acc += total * total
    r = tl.rsqrt(tl.sum(acc, axis=0) / n_cols + eps)

    for first in range(0, n_cols, TILE):
        cols = first + lane
        live = cols < n_cols
        x = tl.load(x_row + cols, mask=live, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + cols, mask=live, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=live, other=0.0).to(tl.float32)
        rounded = (x + residual).to(total_ptr.dtype.element_ty)
        tl.store(total_row + cols, rounded, mask=live)
        normed = rounded.to(tl.float32) * r
        tl.store(out_row + cols, normed * (1.0 + weight), mask=live)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of x and residual, and its RMSNorm: returns (out, total)."""
    out = x.new_empty(x.shape) if out is None else out
    total = x.new_empty(x.shape) if total is None else total
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total,
        n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0),
        1e-5,
    )  # fmt: skip
    return out, total
