# gpu-programming/triton-kernels/add_rms_norm.py | two mistakes | (1) in add_rms_norm_kernel `tl.rsqrt((tl.sum(squares, axis=0) + eps) / n_cols)` adds eps before the division, so eps is n_cols times too small; shows in `out` for rows of small values; it should be sum / n_cols + eps; (2) the launch in add_rms_norm passes out.stride(0) for total_pitch as well, so the rows of total go to wrong places where total and out have different row strides and there is more than one row; it should be total.stride(0)
"""Residual addition and RMSNorm; a fixed number of programs walk over the rows."""

import torch
import triton
import triton.language as tl

PROGRAMS = 1056  # 8 for each of 132 SMs

CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in ((1024, 4), (2048, 4), (4096, 4), (4096, 8), (8192, 8), (16384, 16))
]


def fitting(configs, named_args, **kwargs):
    """The smallest tile that holds the row, and the one before it."""
    widest = max(1024, min(16384, triton.next_power_of_2(named_args["n_cols"])))
    return [c for c in configs if c.kwargs["TILE"] in (widest // 2, widest)]


@triton.jit
def load_sum(x_at, residual_at, mask):
    """x + residual as it will be stored, rounded to the dtype of x."""
    x = tl.load(x_at, mask=mask, other=0.0)
    residual = tl.load(residual_at, mask=mask, other=0.0)
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_rows, n_cols,
    x_pitch, residual_pitch, out_pitch, total_pitch, eps, TILE: tl.constexpr,
):  # fmt: skip
    """Program i owns the rows i, i + programs, i + 2 * programs and so on."""
    first, jump = tl.program_id(axis=0).to(tl.int64), tl.num_programs(axis=0).to(tl.int64)
    x_row = x_ptr + first * x_pitch
    residual_row = residual_ptr + first * residual_pitch
    out_row = out_ptr + first * out_pitch
    total_row = total_ptr + first * total_pitch
    for _ in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for start in range(0, n_cols, TILE):
            cols = start + tl.arange(0, TILE)
            seen = load_sum(x_row + cols, residual_row + cols, cols < n_cols).to(tl.float32)
            squares += seen * seen
        rstd = tl.rsqrt((tl.sum(squares, axis=0) + eps) / n_cols)
        for begin in range(0, n_cols, TILE):
            lanes = begin + tl.arange(0, TILE)
            mask = lanes < n_cols
            total = load_sum(x_row + lanes, residual_row + lanes, mask)
            weight = tl.load(weight_ptr + lanes, mask=mask, other=0.0).to(tl.float32)
            tl.store(total_row + lanes, total, mask=mask)
            tl.store(out_row + lanes, (total.to(tl.float32) * rstd * weight).to(total.dtype), mask=mask)
        x_row += jump * x_pitch
        residual_row += jump * residual_pitch
        out_row += jump * out_pitch
        total_row += jump * total_pitch


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, total): total is x + residual, and out its rows over their root mean square, times weight."""
    n_rows, n_cols = x.shape
    out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if out is None else out
    total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if total is None else total
    grid = (min(n_rows, PROGRAMS),)
    add_rms_norm_kernel[grid](
        x, residual, weight, out, total, n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), out.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
