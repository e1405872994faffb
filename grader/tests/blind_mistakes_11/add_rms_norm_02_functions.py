# gpu-programming/triton-kernels/add_rms_norm.py | corner | the rounded sum is squared in its own dtype before it becomes fp32 (`(t * t).to(tl.float32)` in tile_squares); must convert to fp32 first. Shows in fp16 for rows with sums above 255 (the square is inf, and out is 0) or rows of very small ones (their squares vanish); moderate values, and fp32, are right.
"""total = x + residual, and its RMS norm, one program a row."""

import torch
import triton
import triton.language as tl


def config(tile, warps):
    return triton.Config({"TILE": tile}, num_warps=warps)


CONFIGS = [config(1024, 4), config(2048, 8), config(4096, 8), config(8192, 16), config(16384, 32)]


def fitting(configs, named_args, **kwargs):
    """A tile as wide as the row, or the widest."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [c for c in configs if c.kwargs["TILE"] == size]


@triton.jit
def tile_total(x_row, residual_row, cols, n_cols):
    """One tile of the sum, rounded as it is stored; 0 past the end."""
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0)
    residual = tl.load(residual_row + cols, mask=cols < n_cols, other=0.0)
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x_row.dtype.element_ty)


@triton.jit
def tile_squares(t):
    return (t * t).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps, TILE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    lanes = tl.arange(0, TILE)
    sums = tl.zeros((TILE,), dtype=tl.float32)
    for start in range(0, n_cols, TILE):
        sums += tile_squares(tile_total(x_row, residual_row, start + lanes, n_cols))
    r = tl.rsqrt(tl.sum(sums, axis=0) / n_cols + eps)
    for start in range(0, n_cols, TILE):
        cols = start + lanes
        t = tile_total(x_row, residual_row, cols, n_cols)
        w = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(total_ptr + row * stride_total + cols, t, mask=cols < n_cols)
        normed = t.to(tl.float32) * r * w
        tl.store(out_ptr + row * stride_out + cols, normed.to(out_ptr.dtype.element_ty), mask=cols < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """The norm of x + residual, and x + residual, in this order."""
    if out is None:
        out = x.new_empty(x.shape)
    if total is None:
        total = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    strides = [t.stride(0) for t in (x, residual, out, total)]
    add_rms_norm_kernel[(n_rows,)](x, residual, weight, out, total, n_cols, *strides, 1e-5)
    return out, total
