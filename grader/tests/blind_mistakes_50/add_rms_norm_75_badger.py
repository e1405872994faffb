# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | In inverse_rms `return n_cols / tl.sqrt(whole)` should be `tl.sqrt(n_cols / whole)` (sqrt(n_cols) / sqrt(whole)): n_cols belongs under the root, so `out` is too large by sqrt(n_cols). `total` is right; `out` is wrong for all rows of more than one column.
"""Residual addition and RMSNorm of the sum; a row of one tile stays in registers, longer rows are read twice."""

import torch
import triton
import triton.language as tl

EPS = tl.constexpr(1e-5)

# (numbers of a tile, warps); 16 or 32 numbers for each thread, 8 in the first config.
SIZES = ((1024, 4), (2048, 4), (4096, 8), (8192, 8), (8192, 16), (16384, 16), (16384, 32))
CONFIGS = [triton.Config({"TILE": tile}, num_warps=warps) for tile, warps in SIZES]


def fitting(configs, named_args, **kwargs):
    """The narrowest tiles that hold the row, or the widest ones where none does."""
    n_cols = named_args["n_cols"]
    wide = [config.kwargs["TILE"] for config in configs if config.kwargs["TILE"] >= n_cols]
    best = min(wide) if wide else max([config.kwargs["TILE"] for config in configs])
    return [config for config in configs if config.kwargs["TILE"] == best]


@triton.jit
def inverse_rms(squares, n_cols):
    """1 / sqrt(mean + EPS) from a tile of sums of squares; EPS counts n_cols times in the sum."""
    whole = tl.sum(squares, axis=0) + EPS * n_cols
    return n_cols / tl.sqrt(whole)


@triton.jit
def add(x_row, residual_row, cols, n_cols):
    """The sum of two pieces of a row, rounded to the dtype of x, in fp32."""
    inside = cols < n_cols
    x = tl.load(x_row + cols, mask=inside, other=0.0)
    r = tl.load(residual_row + cols, mask=inside, other=0.0)
    return (x.to(tl.float32) + r.to(tl.float32)).to(x.dtype).to(tl.float32)


@triton.jit
def finish(total, inv, weight_ptr, out_row, total_row, cols, n_cols):
    """Store both results of some columns."""
    inside = cols < n_cols
    w = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(total_row + cols, total.to(total_row.dtype.element_ty), mask=inside)
    tl.store(out_row + cols, (total * inv * w).to(out_row.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"ONE": lambda args: args["n_cols"] <= args["TILE"]})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total,
    TILE: tl.constexpr, ONE: tl.constexpr,
):  # fmt: skip
    """Program i owns row i; ONE says that a tile is as wide as the row."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    lanes = tl.arange(0, TILE)
    if ONE:
        total = add(x_row, residual_row, lanes, n_cols)
        inv = inverse_rms(total * total, n_cols)
        finish(total, inv, weight_ptr, out_row, total_row, lanes, n_cols)
    else:
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for start in range(0, n_cols, TILE):
            part = add(x_row, residual_row, start + lanes, n_cols)
            squares += part * part
        inv = inverse_rms(squares, n_cols)
        for start in range(0, n_cols, TILE):
            part = add(x_row, residual_row, start + lanes, n_cols)
            finish(part, inv, weight_ptr, out_row, total_row, start + lanes, n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """out and total: total = x + residual, out = total / sqrt(mean(total * total) + 1e-5) * weight, by rows."""
    out = torch.empty(x.shape, device=x.device, dtype=x.dtype) if out is None else out
    total = torch.empty(x.shape, device=x.device, dtype=x.dtype) if total is None else total
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0),
    )  # fmt: skip
    return out, total
