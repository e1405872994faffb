# gpu-programming/triton-kernels/add_rms_norm.py | corner | In `add_rms_norm_kernel`, in the second `if REST:`, `weight = tl.load(weight_ptr + lane, mask=last, other=0.0)` should be `weight_ptr + whole + lane`. Shows in the last, incomplete tile of rows longer than a tile: always for n_cols above 16384 that TILE does not divide (16385, 40000), and for shorter rows where the tuner chooses the narrower tile. Rows of one tile and rows of whole tiles are right; `total` is always right.
"""Residual addition and RMSNorm: whole tiles without a mask, and the rest of a row as one masked tile."""

import torch
import triton
import triton.language as tl

EPS = 1e-5

# At least 8 numbers for each thread, one load of 16 bytes in 16 bits, and at most 32.
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
def rounded_sum(x, residual):
    """x + residual in fp32, with the digits that the stored total has."""
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"REST": lambda args: args["n_cols"] % args["TILE"] != 0})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,  # elements from one row to the next
    eps,
    TILE: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """Program i owns row i: first the sum of squares, then both results."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total
    dtype = out_ptr.dtype.element_ty

    lane = tl.arange(0, TILE)
    whole = (n_cols // TILE) * TILE  # columns in whole tiles
    last = lane < n_cols - whole

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for start in range(0, whole, TILE):
        cols = start + lane
        total = rounded_sum(tl.load(x_row + cols), tl.load(residual_row + cols))
        squares += total * total
    if REST:
        x = tl.load(x_row + whole + lane, mask=last, other=0.0)
        residual = tl.load(residual_row + whole + lane, mask=last, other=0.0)
        total = rounded_sum(x, residual)
        squares += total * total
    r = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)

    for start in range(0, whole, TILE):
        cols = start + lane
        weight = tl.load(weight_ptr + cols).to(tl.float32)
        total = rounded_sum(tl.load(x_row + cols), tl.load(residual_row + cols))
        tl.store(total_row + cols, total.to(dtype))
        tl.store(out_row + cols, (total * r * weight).to(dtype))
    if REST:
        weight = tl.load(weight_ptr + lane, mask=last, other=0.0).to(tl.float32)
        x = tl.load(x_row + whole + lane, mask=last, other=0.0)
        residual = tl.load(residual_row + whole + lane, mask=last, other=0.0)
        total = rounded_sum(x, residual)
        tl.store(total_row + whole + lane, total.to(dtype), mask=last)
        tl.store(out_row + whole + lane, (total * r * weight).to(dtype), mask=last)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, columns contiguous, rows any number of elements apart;
    weight is (n_cols,). The results go to `out` and `total` where they are given.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    if total is None:
        total = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), EPS,
    )  # fmt: skip
    return out, total
