# gpu-programming/triton-kernels/add_rms_norm.py | right | at most 2048 programs, each walks over rows in a while loop; a row of one tile takes a constexpr path and keeps the sum in registers; the tiles of a long row are visited from the last to the first in the second loop.
"""Residual addition and RMSNorm with a bounded number of programs."""

import torch
import triton
import triton.language as tl

PROGRAMS = 2048
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in ((1024, 2), (1024, 4), (2048, 4), (4096, 8), (8192, 8), (16384, 16))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def sum_of(x_ptr, residual_ptr, cols, mask):
    """x + residual as it is stored, in fp32; 0 where mask is false."""
    x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    return (x + residual).to(x_ptr.dtype.element_ty).to(tl.float32)


@triton.jit
def store_both(out_ptr, total_ptr, weight_ptr, cols, mask, total, r):
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(total_ptr + cols, total.to(total_ptr.dtype.element_ty), mask=mask)
    tl.store(out_ptr + cols, (total * r * weight).to(out_ptr.dtype.element_ty), mask=mask)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_rows, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    lanes = tl.arange(0, TILE)
    row = tl.program_id(0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        residual_row = residual_ptr + row * stride_residual
        out_row = out_ptr + row * stride_out
        total_row = total_ptr + row * stride_total
        if TILES == 1:
            mask = lanes < n_cols
            total = sum_of(x_row, residual_row, lanes, mask)
            r = 1.0 / tl.sqrt(tl.sum(total * total, axis=0) / n_cols + eps)
            store_both(out_row, total_row, weight_ptr, lanes, mask, total, r)
        else:
            squares = tl.zeros((TILE,), dtype=tl.float32)
            for i in range(TILES):
                cols = i * TILE + lanes
                part = sum_of(x_row, residual_row, cols, cols < n_cols)
                squares += part * part
            scale = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)
            for i in range(TILES):
                cols = (TILES - 1 - i) * TILE + lanes
                part = sum_of(x_row, residual_row, cols, cols < n_cols)
                store_both(out_row, total_row, weight_ptr, cols, cols < n_cols, part, scale)
        row += tl.num_programs(0)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    out = x.new_empty(x.shape) if out is None else out
    total = x.new_empty(x.shape) if total is None else total
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(min(n_rows, PROGRAMS),)](
        x, residual, weight, out, total, n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
