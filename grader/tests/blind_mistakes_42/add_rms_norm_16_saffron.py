# gpu-programming/triton-kernels/add_rms_norm.py | error | `width = n_cols.to(tl.float32)` in the kernel: n_cols = 1 is specialised to a constexpr, which has no `.to`; dividing by `n_cols` as it is would do. Compile error for matrices of one column, (1, 1), else right.
"""Residual addition and RMS normalisation of rows of any length, autotuned; one tile where the row fits in it."""

import torch
import triton
import triton.language as tl

WIDEST = 16384  # columns whose numbers stay in the registers of a program
CONFIGS = [
    triton.Config({"TILE": width}, num_warps=width // (32 * each))
    for width in (1024, 2048, 4096, 8192, WIDEST)
    for each in (8, 16, 32)
    if 4 <= width // (32 * each) <= 32
]


def fitting(configs, named_args, **kwargs):
    """Tiles of the row's own size, or half of it; the widest ones for rows that no tile holds."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), WIDEST)
    return [config for config in configs if config.kwargs["TILE"] in (size // 2, size)]


@triton.jit
def added(x_tiles, residual_tiles, cols, inside):
    """One tile of x + residual in fp32, with the digits that the stored sum has."""
    x = tl.load(x_tiles + cols, mask=inside, other=0.0)
    residual = tl.load(residual_tiles + cols, mask=inside, other=0.0)
    total = x.to(tl.float32) + residual.to(tl.float32)
    return total.to(x.dtype).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"ONE_TILE": lambda args: args["n_cols"] <= args["TILE"]})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_cols, stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr, ONE_TILE: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i.

    The matrices are (n_rows, n_cols) with contiguous columns, each with its own stride from row to row.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    residual_ptr += row * stride_residual
    out_ptr += row * stride_out
    total_ptr += row * stride_total
    dtype = out_ptr.dtype.element_ty
    lanes = tl.arange(0, TILE)
    width = n_cols.to(tl.float32)

    if ONE_TILE:
        inside = lanes < n_cols
        total = added(x_ptr, residual_ptr, lanes, inside)
        tl.store(total_ptr + lanes, total.to(dtype), mask=inside)
        rstd = tl.rsqrt(tl.sum(total * total, axis=0) / width + eps)
        weight = tl.load(weight_ptr + lanes, mask=inside, other=0.0).to(tl.float32)
        tl.store(out_ptr + lanes, (total * rstd * weight).to(dtype), mask=inside)
    else:
        sums = tl.zeros((TILE,), dtype=tl.float32)
        for start in range(0, n_cols, TILE):
            cols = start + lanes
            part = added(x_ptr, residual_ptr, cols, cols < n_cols)
            sums += part * part
        rstd = tl.rsqrt(tl.sum(sums, axis=0) / width + eps)
        for start in range(0, n_cols, TILE):
            cols = start + lanes
            inside = cols < n_cols
            part = added(x_ptr, residual_ptr, cols, inside)
            weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
            tl.store(total_ptr + cols, part.to(dtype), mask=inside)
            tl.store(out_ptr + cols, (part * rstd * weight).to(dtype), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols), of one dtype, columns contiguous, any row strides; weight is (n_cols,).
    The results go to `out` and `total`, where these are given.
    """
    n_rows, n_cols = x.shape
    out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype) if out is None else out
    total = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype) if total is None else total
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total,
        n_cols, x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
