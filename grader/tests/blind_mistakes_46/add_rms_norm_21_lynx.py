# gpu-programming/triton-kernels/add_rms_norm.py | right | A fixed number of programs walks over the rows with pointers that move by n rows; where a row fits one tile its weight is loaded once and kept in registers for all rows of the program, longer rows are read twice. The norm is that of the sum before it is rounded.
"""Residual addition and RMSNorm by a fixed number of programs that walk over the rows, autotuned."""

import torch
import triton
import triton.language as tl

# 8 numbers for each thread are one load of 16 bytes in 16 bits; beyond 32 they do not stay in registers.
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=tile // (32 * each))
    for tile in (1024, 2048, 4096, 8192, 16384)
    for each in (8, 16, 32)
    if tile // (32 * each) <= 16
]
WALKERS = 1056  # 8 for each of 132 SMs


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: the narrowest tile that has a whole row, or else the widest one."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if config.kwargs["TILE"] == size]


@triton.jit
def fetch(ptr, cols, n_cols):
    """Columns of a row in fp32, and 0 past its end."""
    return tl.load(ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.jit
def put(ptr, cols, n_cols, values):
    """Store columns of a row, rounded to its dtype."""
    tl.store(ptr + cols, values.to(ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def inverse_rms(squares, n_cols, eps):
    """1 / sqrt(mean + eps), where squares is a block of sums of squares."""
    return 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"FITS": lambda args: args["n_cols"] <= args["TILE"]})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_rows, n_cols, stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr, FITS: tl.constexpr,
):  # fmt: skip
    """Of n programs, program i has rows i, i + n, i + 2 n and so on; all results are in fp32 until stored."""
    first, step = tl.program_id(axis=0), tl.num_programs(axis=0)
    lanes = tl.arange(0, TILE)
    x_row, residual_row = x_ptr + first.to(tl.int64) * stride_x, residual_ptr + first.to(tl.int64) * stride_residual
    out_row, total_row = out_ptr + first.to(tl.int64) * stride_out, total_ptr + first.to(tl.int64) * stride_total
    x_step, residual_step = step.to(tl.int64) * stride_x, step.to(tl.int64) * stride_residual
    out_step, total_step = step.to(tl.int64) * stride_out, step.to(tl.int64) * stride_total
    if FITS:
        # One load of the weight serves all rows of the program.
        weight = fetch(weight_ptr, lanes, n_cols)
    for _ in tl.range(first, n_rows, step):
        if FITS:
            both = fetch(x_row, lanes, n_cols) + fetch(residual_row, lanes, n_cols)
            put(total_row, lanes, n_cols, both)
            put(out_row, lanes, n_cols, both * inverse_rms(both * both, n_cols, eps) * weight)
        else:
            squares = tl.zeros((TILE,), dtype=tl.float32)
            for start in tl.range(0, n_cols, TILE):
                both = fetch(x_row, start + lanes, n_cols) + fetch(residual_row, start + lanes, n_cols)
                squares += both * both
            rstd = inverse_rms(squares, n_cols, eps)
            for start in tl.range(0, n_cols, TILE):
                cols = start + lanes
                both = fetch(x_row, cols, n_cols) + fetch(residual_row, cols, n_cols)
                put(total_row, cols, n_cols, both)
                put(out_row, cols, n_cols, both * rstd * fetch(weight_ptr, cols, n_cols))
        x_row += x_step
        residual_row += residual_step
        out_row += out_step
        total_row += total_step


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    if out is None:
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    if total is None:
        total = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(min(n_rows, WALKERS),)](
        x, residual, weight, out, total, n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
