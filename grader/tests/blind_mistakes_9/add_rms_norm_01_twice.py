# gpu-programming/triton-kernels/add_rms_norm.py | corner | `EPS = 1e-6`, as in many language models; the README's formula has 1e-5. out is too large where the mean of total * total is not far above 1e-5 (rows of small numbers); all other rows are within the tolerance, and total is right.
"""Residual addition and RMSNorm; a row of one tile stays in registers between the two steps."""

import torch
import triton
import triton.language as tl

EPS = 1e-6

CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in [(1024, 4), (2048, 4), (2048, 8), (4096, 8), (8192, 8), (8192, 16), (16384, 16)]
]


def fitting(configs, named_args, **kwargs):
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def added(x_row, residual_row, cols, n_cols):
    """Both rows together, rounded as they are stored, in fp32, and 0 past the end."""
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    return (x + residual).to(x_row.dtype.element_ty).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"ALONE": lambda args: args["n_cols"] <= args["TILE"]})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps, TILE: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total
    kind: tl.constexpr = out_ptr.dtype.element_ty
    lane = tl.arange(0, TILE)
    if ALONE:
        inside = lane < n_cols
        total = added(x_row, residual_row, lane, n_cols)
        tl.store(total_row + lane, total.to(kind), mask=inside)
        r = 1.0 / tl.sqrt(tl.sum(total * total, axis=0) / n_cols + eps)
        weight = tl.load(weight_ptr + lane, mask=inside, other=0.0).to(tl.float32)
        tl.store(out_row + lane, (total * r * weight).to(kind), mask=inside)
    else:
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for start in range(0, n_cols, TILE):
            total = added(x_row, residual_row, start + lane, n_cols)
            squares += total * total
        r = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)
        for start in range(0, n_cols, TILE):
            cols = start + lane
            inside = cols < n_cols
            total = added(x_row, residual_row, cols, n_cols)
            weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
            tl.store(total_row + cols, total.to(kind), mask=inside)
            tl.store(out_row + cols, (total * r * weight).to(kind), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    total = torch.empty(x.shape, dtype=x.dtype, device=x.device) if total is None else total
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), EPS,
    )  # fmt: skip
    return out, total
