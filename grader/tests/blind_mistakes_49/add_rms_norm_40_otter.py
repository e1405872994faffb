# gpu-programming/triton-kernels/add_rms_norm.py | right | Unusual: the last tile of a row is loaded first and stays in registers, only the full tiles before it are loaded again, without masks and from the end of the row to its beginning; the sum is a `tl.reduce` with a combine function of its own.
"""Residual addition and RMS normalisation; the last tile of a row stays in registers, autotuned."""

import torch
import triton
import triton.language as tl

# Tiles and warps: 8 to 32 numbers of a tile for each thread.
SHAPES = ((1024, 2), (1024, 4), (2048, 2), (2048, 4), (4096, 4), (4096, 8), (8192, 8), (8192, 16))
CONFIGS = [triton.Config({"TILE": tile}, num_warps=warps, num_stages=1) for tile, warps in SHAPES]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile or in two, the widest tiles for a long row."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 8192)
    return [config for config in configs if config.kwargs["TILE"] in (size, size // 2)]


@triton.jit
def plus(a, b):
    return a + b


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"FULL": lambda args: triton.cdiv(args["n_cols"], args["TILE"]) - 1})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    weight_ptr,  # (n_cols,) like x
    out_ptr, total_ptr,  # (n_rows, n_cols) like x
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,  # elements from one row to the next
    eps,
    TILE: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """Program i owns row i: FULL tiles without a mask, and then one of 1 to TILE columns.

    The last tile is loaded first, and kept. Only the others are loaded again when the norm is known, from the
    end of the row to its beginning, since L2 holds what was read last.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    lanes = tl.arange(0, TILE)

    last = FULL * TILE + lanes
    inside = last < n_cols
    kept = tl.load(x_row + last, mask=inside, other=0.0).to(tl.float32)
    kept += tl.load(residual_row + last, mask=inside, other=0.0).to(tl.float32)
    kept = kept.to(total_ptr.dtype.element_ty).to(tl.float32)
    squares = kept * kept
    for tile in range(FULL):
        cols = tile * TILE + lanes
        total = tl.load(x_row + cols).to(tl.float32) + tl.load(residual_row + cols).to(tl.float32)
        total = total.to(total_ptr.dtype.element_ty).to(tl.float32)
        squares += total * total
    rstd = 1.0 / tl.sqrt(tl.reduce(squares, 0, plus) / n_cols + eps)

    weight = tl.load(weight_ptr + last, mask=inside, other=0.0).to(tl.float32)
    tl.store(total_row + last, kept.to(total_ptr.dtype.element_ty), mask=inside)
    tl.store(out_row + last, (kept * rstd * weight).to(out_ptr.dtype.element_ty), mask=inside)
    for tile in range(FULL):
        cols = (FULL - 1 - tile) * TILE + lanes
        total = tl.load(x_row + cols).to(tl.float32) + tl.load(residual_row + cols).to(tl.float32)
        total = total.to(total_ptr.dtype.element_ty).to(tl.float32)
        weight = tl.load(weight_ptr + cols).to(tl.float32)
        tl.store(total_row + cols, total.to(total_ptr.dtype.element_ty))
        tl.store(out_row + cols, (total * rstd * weight).to(out_ptr.dtype.element_ty))


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given.
    """
    n_rows, n_cols = x.shape
    out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if out is None else out
    total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if total is None else total
    strides = [tensor.stride(0) for tensor in (x, residual, out, total)]
    add_rms_norm_kernel[(n_rows,)](x, residual, weight, out, total, n_cols, *strides, 1e-5)
    return out, total
