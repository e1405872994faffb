# gpu-programming/triton-kernels/add_rms_norm.py | honest | two rows a program as a tile (2, TILE), the second pass runs from the last tile to the first, the norm is that of the unrounded fp32 sum, and the tile of partial sums is joined by tl.reduce with a helper
"""Residual addition and RMS normalisation, two rows a program."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": 512}, num_warps=2),
    triton.Config({"TILE": 1024}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=8),
    triton.Config({"TILE": 4096}, num_warps=8),
    triton.Config({"TILE": 8192}, num_warps=16),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def plus(a, b):
    return a + b


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_rows, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps, TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    rows = (tl.program_id(axis=0).to(tl.int64) * 2 + tl.arange(0, 2))[:, None]
    cols = tl.arange(0, TILE)[None, :]
    x_ptrs = x_ptr + rows * stride_x
    residual_ptrs = residual_ptr + rows * stride_residual

    squares = tl.zeros((2, TILE), dtype=tl.float32)
    for tile in range(TILES):
        at = tile * TILE + cols
        mask = (rows < n_rows) & (at < n_cols)
        total = tl.load(x_ptrs + at, mask=mask, other=0.0).to(tl.float32)
        total += tl.load(residual_ptrs + at, mask=mask, other=0.0).to(tl.float32)
        squares += total * total
    mean = tl.reduce(squares, 1, plus) / n_cols
    rms = tl.sqrt(mean + eps)[:, None]

    for back in range(TILES):
        at = (TILES - 1 - back) * TILE + cols
        mask = (rows < n_rows) & (at < n_cols)
        total = tl.load(x_ptrs + at, mask=mask, other=0.0).to(tl.float32)
        total += tl.load(residual_ptrs + at, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
        out = weight * (total / rms)
        tl.store(out_ptr + rows * stride_out + at, out.to(out_ptr.dtype.element_ty), mask=mask)
        tl.store(total_ptr + rows * stride_total + at, total.to(total_ptr.dtype.element_ty), mask=mask)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    out = torch.empty_like(x) if out is None else out
    total = torch.empty_like(x) if total is None else total
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(triton.cdiv(n_rows, 2),)](
        x, residual, weight, out, total, n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
