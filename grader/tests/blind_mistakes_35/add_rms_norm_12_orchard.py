# gpu-programming/triton-kernels/add_rms_norm.py | contract | rows_like: a result that is not given is allocated with rows padded to a multiple of 8 elements and returned as the slice `[:, :n_cols]`, so for n_cols that is no multiple of 8 (and more than one row) the new `out` and `total` are not contiguous, although the README says: otherwise return a new contiguous tensor. The values are right, and results that are given are right in all respects. Should be torch.empty((n_rows, n_cols), ...)
"""Residual addition and RMS normalisation, one program for each row, in tiles that fit the registers, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": 1024}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=8),
    triton.Config({"TILE": 4096}, num_warps=8),
    triton.Config({"TILE": 8192}, num_warps=8),
    triton.Config({"TILE": 8192}, num_warps=16),
    triton.Config({"TILE": 16384}, num_warps=16),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def tile_of(row_ptr, cols, n_cols):
    """These columns of a row as fp32, 0 past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    weight_ptr,  # (n_cols,) like x
    out_ptr, total_ptr,  # (n_rows, n_cols) like x
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,  # elements from one row to the next
    eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i.

    A row has TILES tiles of TILE columns. The norm is that of the sum in fp32, before it is rounded.
    """
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_ptr += row * stride_x
    residual_ptr += row * stride_residual
    out_ptr += row * stride_out
    total_ptr += row * stride_total

    sums = tl.zeros((TILE,), dtype=tl.float32)
    for i in range(TILES):
        here = i * TILE + cols
        total = tile_of(x_ptr, here, n_cols) + tile_of(residual_ptr, here, n_cols)
        sums += total * total
    r = tl.rsqrt(tl.sum(sums, axis=0) / n_cols + eps)

    for i in range(TILES):
        here = i * TILE + cols
        total = tile_of(x_ptr, here, n_cols) + tile_of(residual_ptr, here, n_cols)
        normed = total * r * tile_of(weight_ptr, here, n_cols)
        tl.store(total_ptr + here, total.to(total_ptr.dtype.element_ty), mask=here < n_cols)
        tl.store(out_ptr + here, normed.to(out_ptr.dtype.element_ty), mask=here < n_cols)


def rows_like(x):
    """Memory for a result of the shape and dtype of x, for stores of 16 bytes."""
    n_rows, n_cols = x.shape
    width = 8 * triton.cdiv(n_cols, 8)
    return torch.empty((n_rows, width), dtype=x.dtype, device=x.device)[:, :n_cols]


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    if out is None:
        out = rows_like(x)
    if total is None:
        total = rows_like(x)
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0),
        eps=1e-5,
    )  # fmt: skip
    return out, total
