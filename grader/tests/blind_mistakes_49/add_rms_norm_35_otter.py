# gpu-programming/triton-kernels/add_rms_norm.py | two mistakes | Both in `add_rms_norm_kernel`. (1) `rstd = tl.rsqrt((tl.sum(squares, axis=0) + eps) / n_cols)` divides eps by n_cols, too; it should be `tl.sum(squares, axis=0) / n_cols + eps`; shows for rows of small values (about 0.001). (2) `weight = tl.load(weight_ptr + lanes, ...)` is loaded once, before the loops, so each tile is scaled by the weights of the first one; it should be loaded at `weight_ptr + cols` (`cols = tile * TILE + lanes`) for each tile; shows for rows longer than a tile, above 8192 columns.
"""Residual addition and RMS normalisation by programs that take one row after the other, autotuned."""

import torch
import triton
import triton.language as tl

WIDEST = 8192
PROGRAMS = 1056  # eight for each of the 132 multiprocessors of an H200

# 8 or 16 numbers for each thread, so that the weight stays in registers beside a row.
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps, num_stages=1)
    for tile, warps in ((1024, 2), (1024, 4), (2048, 4), (2048, 8), (4096, 8), (4096, 16), (8192, 16))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles as wide as the row, the widest for a long row."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), WIDEST)
    return [config for config in configs if config.kwargs["TILE"] == size]


@triton.jit
def rounded_sum(x_row, residual_row, cols, n_cols):
    """x + residual of some columns as it is stored, in fp32; 0 past the end of the row."""
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
    n_rows, n_cols,
    stride_x, stride_residual, stride_out, stride_total,  # elements from one row to the next
    eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Of p programs number i has the rows i, i + p, i + 2 p and so on; it loads the weight once for all."""
    lanes = tl.arange(0, TILE)
    weight = tl.load(weight_ptr + lanes, mask=lanes < n_cols, other=0.0).to(tl.float32)

    for number in tl.range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        row = number.to(tl.int64)
        x_row = x_ptr + row * stride_x
        residual_row = residual_ptr + row * stride_residual
        out_row = out_ptr + row * stride_out
        total_row = total_ptr + row * stride_total

        squares = tl.zeros((TILE,), dtype=tl.float32)
        for tile in range(TILES):
            total = rounded_sum(x_row, residual_row, tile * TILE + lanes, n_cols)
            squares += total * total
        rstd = tl.rsqrt((tl.sum(squares, axis=0) + eps) / n_cols)

        for tile in range(TILES):
            cols = tile * TILE + lanes
            total = rounded_sum(x_row, residual_row, cols, n_cols)
            normed = total * rstd * weight
            tl.store(total_row + cols, total.to(total_ptr.dtype.element_ty), mask=cols < n_cols)
            tl.store(out_row + cols, normed.to(out_ptr.dtype.element_ty), mask=cols < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    add_rms_norm_kernel[(min(n_rows, PROGRAMS),)](
        x, residual, weight, out, total, n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
