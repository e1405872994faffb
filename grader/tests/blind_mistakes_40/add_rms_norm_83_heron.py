# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | `squared` (`return a * a + b * b`) is the combine function of `tl.reduce(total, 0, squared)` in `add_rms_norm_kernel`: tl.reduce joins partial results, so sums are squared again at each level of the tree. It should reduce `total * total` with `a + b` (`tl.sum(total * total)`). `out` is wrong in nearly all cases (0 where the value overflows to inf); `total` is right.
"""Residual addition and RMSNorm: a row of one tile stays in registers, a longer one is read twice."""

import torch
import triton
import triton.language as tl

EPS = 1e-5

# 8 to 32 numbers for each thread.
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in ((1024, 4), (2048, 8), (4096, 8), (4096, 16), (8192, 8), (8192, 16), (16384, 16), (16384, 32))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def squared(a, b):
    """How tl.reduce joins two numbers of a tile."""
    return a * a + b * b


@triton.jit
def added(x_row, residual_row, cols, n_cols):
    """x + residual at these columns, rounded as it is stored and in fp32; 0 past the end."""
    inside = cols < n_cols
    x = tl.load(x_row + cols, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=inside, other=0.0).to(tl.float32)
    return (x + residual).to(x_row.dtype.element_ty).to(tl.float32)


@triton.jit
def put(out_row, total_row, weight_ptr, cols, n_cols, total, r):
    """Store total, and total * r * weight, at these columns."""
    inside = cols < n_cols
    weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(total_row + cols, total.to(total_row.dtype.element_ty), mask=inside)
    tl.store(out_row + cols, (total * r * weight).to(out_row.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"ONE": lambda args: args["n_cols"] <= args["TILE"]})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,  # elements from one row to the next
    eps,
    TILE: tl.constexpr, ONE: tl.constexpr,
):  # fmt: skip
    """Program i owns row i; ONE says that the row is a single tile."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    lanes = tl.arange(0, TILE)
    if ONE:
        total = added(x_row, residual_row, lanes, n_cols)
        squares = tl.reduce(total, 0, squared)
        put(out_row, total_row, weight_ptr, lanes, n_cols, total, tl.rsqrt(squares / n_cols + eps))
    else:
        squares = 0.0
        for start in range(0, n_cols, TILE):
            total = added(x_row, residual_row, start + lanes, n_cols)
            squares += tl.reduce(total, 0, squared)
        r = tl.rsqrt(squares / n_cols + eps)
        for start in range(0, n_cols, TILE):
            total = added(x_row, residual_row, start + lanes, n_cols)
            put(out_row, total_row, weight_ptr, start + lanes, n_cols, total, r)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, columns contiguous, rows any number of elements apart;
    weight is (n_cols,). The results go to `out` and `total` where they are given.
    """
    n_rows, n_cols = x.shape
    out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype) if out is None else out
    total = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype) if total is None else total
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), EPS,
    )  # fmt: skip
    return out, total
