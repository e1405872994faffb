# gpu-programming/triton-kernels/add_rms_norm.py | right | at most 1024 programs, each with every 1024th row; the second sweep of a row goes from its end to its beginning, over what the cache still holds; the norm is that of the sum before it is rounded.
"""Residual addition and RMS normalisation with a fixed number of programs."""

import torch
import triton
import triton.language as tl

PROGRAMS = 1024
CONFIGS = [triton.Config({"TILE": tile}, num_warps=warps) for tile, warps in ((1024, 4), (2048, 4), (4096, 8), (8192, 16))]


def fitting(configs, named_args, **kwargs):
    """Tiles no wider than the row asks for, at least the narrowest."""
    size = triton.next_power_of_2(named_args["n_cols"])
    return [config for config in configs if config.kwargs["TILE"] <= size] or configs[:1]


@triton.jit
def tile_of_sum(x_ptr, residual_ptr, cols, n_cols):
    mask = cols < n_cols
    x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    return x + tl.load(residual_ptr + cols, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def norm_row(x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols, eps, TILE: tl.constexpr):
    """Both results of one row."""
    lanes = tl.arange(0, TILE)
    squares = tl.zeros((TILE,), dtype=tl.float32)
    tiles = tl.cdiv(n_cols, TILE)
    for i in range(0, tiles):
        total = tile_of_sum(x_ptr, residual_ptr, i * TILE + lanes, n_cols)
        squares += total * total
    r = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)
    for i in range(0, tiles):
        cols = (tiles - 1 - i) * TILE + lanes
        mask = cols < n_cols
        total = tile_of_sum(x_ptr, residual_ptr, cols, n_cols)
        weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(total_ptr + cols, total.to(total_ptr.dtype.element_ty), mask=mask)
        tl.store(out_ptr + cols, (total * r * weight).to(out_ptr.dtype.element_ty), mask=mask)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def rows_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_rows, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps, TILE: tl.constexpr,
):  # fmt: skip
    for index in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        row = tl.cast(index, tl.int64)
        norm_row(
            x_ptr + row * stride_x,
            residual_ptr + row * stride_residual,
            weight_ptr,
            out_ptr + row * stride_out,
            total_ptr + row * stride_total,
            n_cols,
            eps,
            TILE,
        )


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """out and total."""
    n_rows, n_cols = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    total = torch.empty(x.shape, dtype=x.dtype, device=x.device) if total is None else total
    rows_kernel[(min(n_rows, PROGRAMS),)](
        x, residual, weight, out, total, n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
