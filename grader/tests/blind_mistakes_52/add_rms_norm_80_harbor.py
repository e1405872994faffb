# gpu-programming/triton-kernels/add_rms_norm.py | right | The row is a two-dimensional block (KEPT, TILE) in registers, where KEPT is a heuristic (1 or 2 tiles, or 0 for two loops over a long row); the squares are summed by two tl.reduce calls with an own addition.
"""Residual addition and RMS normalisation: a row is a block of (TILES, TILE) where it fits, else two loops."""

import torch
import triton
import triton.language as tl

EPS = 1e-5
IN_REGISTERS = 16384  # numbers of a row that a program keeps between its two passes

CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps, num_stages=1)
    for tile, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (4096, 16), (8192, 16), (8192, 32), (16384, 32))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), IN_REGISTERS)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


def rows_of_tiles(args):
    """1 or 2 where the row fits the registers, 0 where the kernel goes through it twice."""
    tiles = triton.cdiv(args["n_cols"], args["TILE"])
    return tiles if tiles <= 2 and tiles * args["TILE"] <= IN_REGISTERS else 0


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def added(x_row, residual_row, cols, mask):
    """x + residual as it will be stored, in fp32, 0 where the mask is."""
    x = tl.load(x_row + cols, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=mask, other=0.0).to(tl.float32)
    return (x + residual).to(x_row.dtype.element_ty).to(tl.float32)


@triton.jit
def inverse_root(squares, n_cols, eps):
    """1 / sqrt(mean + eps) of a row, from its squares in a block of two dimensions."""
    by_tile = tl.reduce(squares, 1, plus)
    return 1.0 / tl.sqrt(tl.reduce(by_tile, 0, plus) / n_cols + eps)


@triton.jit
def finish(out_row, total_row, weight_ptr, total, rstd, cols, mask):
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(total_row + cols, total.to(total_row.dtype.element_ty), mask=mask)
    tl.store(out_row + cols, (total * rstd * weight).to(out_row.dtype.element_ty), mask=mask)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"KEPT": rows_of_tiles})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    """Program i owns row i; KEPT tiles of it stay in registers, or none if KEPT is 0."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    if KEPT > 0:
        cols = tl.arange(0, KEPT)[:, None] * TILE + tl.arange(0, TILE)[None, :]
        mask = cols < n_cols
        total = added(x_row, residual_row, cols, mask)
        rstd = inverse_root(total * total, n_cols, eps)
        finish(out_row, total_row, weight_ptr, total, rstd, cols, mask)
    else:
        lanes = tl.arange(0, TILE)[None, :]
        squares = tl.zeros((1, TILE), dtype=tl.float32)
        for start in range(0, n_cols, TILE):
            cols = start + lanes
            seen = added(x_row, residual_row, cols, cols < n_cols)
            squares += seen * seen
        rstd = inverse_root(squares, n_cols, eps)
        for start in range(0, n_cols, TILE):
            cols = start + lanes
            mask = cols < n_cols
            finish(out_row, total_row, weight_ptr, added(x_row, residual_row, cols, mask), rstd, cols, mask)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total` where they are given.
    """
    out = x.new_empty(x.shape) if out is None else out
    total = x.new_empty(x.shape) if total is None else total
    add_rms_norm_kernel[(x.shape[0],)](
        x, residual, weight, out, total, x.shape[1],
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), EPS,
    )  # fmt: skip
    return out, total
