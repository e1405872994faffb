# gpu-programming/triton-kernels/add_rms_norm.py | contract | without out= or total= the host helper _like(x) allocates torch.empty_strided(x.size(), x.stride(), ...), which copies the row stride of x: where rows of x have gaps, the tensors that add_rms_norm returns have the same gaps and are not contiguous, though the README asks for a new contiguous tensor. All numbers are right. It shows in a call without out= with padded x (5 x 127, fp16); it should be torch.empty(x.shape, dtype=x.dtype, device=x.device)
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

EPS = 1e-5
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (8192, 8), (8192, 16), (16384, 16))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def fetch(row_ptr, cols, n_cols):
    """Columns of one row in fp32, 0 past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.jit
def put(row_ptr, cols, n_cols, values):
    """Store columns of one row, rounded to its dtype."""
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps, TILE: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i.

    The norm is that of the fp32 sum, before it is rounded.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    residual_ptr += row * stride_residual
    out_ptr += row * stride_out
    total_ptr += row * stride_total
    lanes = tl.arange(0, TILE)

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for begin in range(0, n_cols, TILE):
        total = fetch(x_ptr, begin + lanes, n_cols) + fetch(residual_ptr, begin + lanes, n_cols)
        squares += total * total
    inverse = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)

    for begin in range(0, n_cols, TILE):
        cols = begin + lanes
        total = fetch(x_ptr, cols, n_cols) + fetch(residual_ptr, cols, n_cols)
        put(total_ptr, cols, n_cols, total)
        put(out_ptr, cols, n_cols, total * inverse * fetch(weight_ptr, cols, n_cols))


def _like(x):
    """A new tensor for a result."""
    return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    if out is None:
        out = _like(x)
    if total is None:
        total = _like(x)
    row_strides = [matrix.stride(0) for matrix in (x, residual, out, total)]
    add_rms_norm_kernel[(x.size(0),)](x, residual, weight, out, total, x.size(1), *row_strides, EPS)
    return out, total
