# gpu-programming/triton-kernels/add_rms_norm.py | two mistakes | (1) In add_rms_norm_kernel `squares = tl.zeros(...)` stands before the loop over rows, so a program's second and later rows (rows from 128 on, where n_rows > 128) add their squares to those of the program's earlier rows and out is too small; it must be set to zero for each row. (2) In add_rms_norm EPSILON is 1e-6 (the default of lab 4), where the README asks for 1e-5: out is too large for rows of small values (about 0.001).
"""Residual addition and RMS normalisation, by programs that walk over the rows, autotuned."""

import torch
import triton
import triton.language as tl

PROGRAMS = 128  # about as many as a large GPU has multiprocessors
EPSILON = 1e-6

CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=tile // (32 * each))
    for tile in (1024, 2048, 4096, 8192, 16384)
    for each in (16, 32)
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    weight_ptr,  # (n_cols,) like x
    out_ptr, total_ptr,  # (n_rows, n_cols) like x
    n_rows, n_cols,
    stride_x, stride_residual, stride_out, stride_total,  # elements from one row to the next
    eps,
    TILE: tl.constexpr,
):  # fmt: skip
    """Program i owns the rows i, i + programs, i + 2 programs, ..., and takes TILE columns at a time."""
    lanes = tl.arange(0, TILE)
    squares = tl.zeros((TILE,), dtype=tl.float32)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        residual_row = residual_ptr + row * stride_residual
        out_row = out_ptr + row * stride_out
        total_row = total_ptr + row * stride_total

        for start in range(0, n_cols, TILE):
            cols = start + lanes
            inside = cols < n_cols
            x = tl.load(x_row + cols, mask=inside, other=0.0).to(tl.float32)
            residual = tl.load(residual_row + cols, mask=inside, other=0.0).to(tl.float32)
            total = x + residual
            squares += total * total
        r = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)

        for start in range(0, n_cols, TILE):
            cols = start + lanes
            inside = cols < n_cols
            x = tl.load(x_row + cols, mask=inside, other=0.0).to(tl.float32)
            residual = tl.load(residual_row + cols, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
            total = x + residual
            tl.store(total_row + cols, total, mask=inside)
            tl.store(out_row + cols, total * r * weight, mask=inside)

        row += tl.num_programs(axis=0)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    out = torch.empty_like(x) if out is None else out
    total = torch.empty_like(x) if total is None else total
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(min(n_rows, PROGRAMS),)](
        x, residual, weight, out, total, n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), EPSILON,
    )  # fmt: skip
    return out, total
