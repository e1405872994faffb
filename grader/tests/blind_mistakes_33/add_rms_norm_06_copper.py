# gpu-programming/triton-kernels/add_rms_norm.py | two mistakes | (1) in add_rms_norm `rows_each = n_rows // programs` rounds down: with more than 128 rows and no multiple of 128, the last n_rows % 128 rows are never written (149 rows: 21 of them); it should be rounded up, and the kernel should stop at n_rows. (2) in add_rms_norm_kernel `squares += t * t` multiplies t in the dtype of the tensors: in fp16 the squares of totals of about 256 and more, of either sign, are inf, so that the factor and all of out are 0 in such rows, with total right; it should square t.to(tl.float32)
"""Residual addition and RMSNorm by a fixed number of programs, each with some rows in a row."""

import torch
import triton
import triton.language as tl

PROGRAMS = 128


def _tile(tile, warps):
    return triton.Config({"TILE": tile}, num_warps=warps)


CONFIGS = [_tile(1024, 4), _tile(2048, 8), _tile(4096, 8), _tile(4096, 16), _tile(8192, 16), _tile(16384, 32)]


def fitting(configs, named_args, **kwargs):
    """The smallest tile that holds a row, and half of it; the widest for rows that no tile holds."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [c for c in configs if size // 2 <= c.kwargs["TILE"] <= size]


@triton.jit
def plus(x_row, residual_row, cols, n_cols):
    """x + residual, rounded as total is."""
    inside = cols < n_cols
    x = tl.load(x_row + cols, mask=inside, other=0.0)
    residual = tl.load(residual_row + cols, mask=inside, other=0.0)
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x_row.dtype.element_ty)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, rows_each, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps, TILE: tl.constexpr,
):  # fmt: skip
    """Program i owns the rows from i * rows_each on, rows_each of them."""
    lanes = tl.arange(0, TILE)
    first = tl.program_id(axis=0).to(tl.int64) * rows_each
    for i in range(0, rows_each):
        row = first + i
        x_row = x_ptr + row * stride_x
        residual_row = residual_ptr + row * stride_residual
        out_row = out_ptr + row * stride_out
        total_row = total_ptr + row * stride_total
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for start in range(0, n_cols, TILE):
            t = plus(x_row, residual_row, start + lanes, n_cols)
            squares += t * t
        factor = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)
        for start in range(0, n_cols, TILE):
            cols = start + lanes
            inside = cols < n_cols
            t = plus(x_row, residual_row, cols, n_cols)
            weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
            y = t.to(tl.float32) * factor * weight
            tl.store(total_row + cols, t, mask=inside)
            tl.store(out_row + cols, y.to(out_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, normalised and as it is: out and total."""
    n_rows, n_cols = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    total = torch.empty(x.shape, dtype=x.dtype, device=x.device) if total is None else total
    programs = max(min(n_rows, PROGRAMS), 1)
    rows_each = n_rows // programs
    add_rms_norm_kernel[(programs,)](
        x, residual, weight, out, total, rows_each, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
