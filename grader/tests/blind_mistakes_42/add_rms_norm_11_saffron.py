# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | `add_squares` (`return a * a + b * b`), used in `squares += tl.reduce(total, 0, add_squares)` of the kernel, squares partial results again at each level of the reduction; it should be `tl.reduce(total * total, 0, plus)` with `a + b` (or `tl.sum(total * total)`). out is wrong in all cases (often 0), total is right.
"""Residual addition and RMS normalisation: one program a row, the squares added up by a reduction of our own."""

import torch
import triton
import triton.language as tl

EPS = 1e-5
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in (
        (1024, 4), (2048, 4), (2048, 8), (4096, 4), (4096, 8), (8192, 8), (8192, 16), (16384, 16), (16384, 32),
    )
]  # fmt: skip


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def add_squares(a, b):
    """The combination of two values in a sum of squares."""
    return a * a + b * b


@triton.jit
def tile_of_total(x_row, residual_row, cols, n_cols):
    """x + residual at some columns, 0 past the end of the row; rounded to the dtype, as it is stored, in fp32."""
    inside = cols < n_cols
    x = tl.load(x_row + cols, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=inside, other=0.0).to(tl.float32)
    return (x + residual).to(x_row.dtype.element_ty).to(tl.float32)


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
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, TILE)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total

    squares = 0.0
    for tile in range(TILES):
        total = tile_of_total(x_row, residual_row, tile * TILE + lanes, n_cols)
        squares += tl.reduce(total, 0, add_squares)
    scale = tl.rsqrt(squares / n_cols + eps)

    for tile in range(TILES):
        cols = tile * TILE + lanes
        inside = cols < n_cols
        total = tile_of_total(x_row, residual_row, cols, n_cols)
        weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(total_row + cols, total.to(total_ptr.dtype.element_ty), mask=inside)
        tl.store(out_row + cols, (total * scale * weight).to(out_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    The matrices are (n_rows, n_cols), columns contiguous, rows any number of elements apart; weight is
    (n_cols,). The results go to `out` and `total`, where they are given.
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
