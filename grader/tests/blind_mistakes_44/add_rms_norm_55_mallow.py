# gpu-programming/triton-kernels/add_rms_norm.py | corner | `(total * total).to(tl.float32)` and `(part * part).to(tl.float32)` in `add_rms_norm_kernel` square in the dtype of the inputs; convert to fp32 first, then square. Shows in fp16 with |total| above 256 (values far from 0): squares are inf, `out` is 0. fp32, bf16 and ordinary fp16 values are within the tolerance.
"""Residual addition and RMSNorm in one pass over memory, by programs that go from row to row."""

import torch
import triton
import triton.language as tl

EPS = tl.constexpr(1e-5)
PROGRAMS = 1056


def _config(tile, warps):
    return triton.Config({"TILE": tile}, num_warps=warps)


CONFIGS = [
    _config(1024, 2), _config(1024, 4),
    _config(2048, 4), _config(2048, 8),
    _config(4096, 4), _config(4096, 8), _config(4096, 16),
    _config(8192, 8), _config(8192, 16),
    _config(16384, 16),
]  # fmt: skip


def fitting(configs, named_args, **kwargs):
    """A tile for the whole row where there is one, else the widest."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if config.kwargs["TILE"] == size]


@triton.jit
def sum_of(x_row, residual_row, cols, n_cols):
    """x + residual for columns `cols`, rounded to their dtype as it is stored, 0 past the end."""
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0)
    residual = tl.load(residual_row + cols, mask=cols < n_cols, other=0.0)
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)


@triton.jit
def finish(total, inverse, weight_ptr, out_row, total_row, cols, n_cols):
    """Store a tile of both results."""
    inside = cols < n_cols
    weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    normed = total.to(tl.float32) * inverse * weight
    tl.store(total_row + cols, total, mask=inside)
    tl.store(out_row + cols, normed.to(total.dtype), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"WHOLE": lambda args: args["n_cols"] <= args["TILE"]})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_rows, n_cols,
    stride_x, stride_residual, stride_out, stride_total,
    TILE: tl.constexpr,
    WHOLE: tl.constexpr,  # whether a tile holds a whole row
):  # fmt: skip
    """Program i owns rows i, i + programs, i + 2 programs, ..."""
    lanes = tl.arange(0, TILE)
    for index in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        row = tl.cast(index, tl.int64)
        x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
        out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
        if WHOLE:
            total = sum_of(x_row, residual_row, lanes, n_cols)
            squares = (total * total).to(tl.float32)
            inverse = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + EPS)
            finish(total, inverse, weight_ptr, out_row, total_row, lanes, n_cols)
        else:
            squares = tl.zeros((TILE,), dtype=tl.float32)
            for start in range(0, n_cols, TILE):
                part = sum_of(x_row, residual_row, start + lanes, n_cols)
                squares += (part * part).to(tl.float32)
            inverse = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + EPS)
            for start in range(0, n_cols, TILE):
                part = sum_of(x_row, residual_row, start + lanes, n_cols)
                finish(part, inverse, weight_ptr, out_row, total_row, start + lanes, n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows over their root mean square, scaled: out and total, in this order.

    Rows of x, residual, out and total may be any number of elements apart, each at its own distance.
    """
    n_rows, n_cols = x.shape
    out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if out is None else out
    total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if total is None else total
    strides = [tensor.stride(0) for tensor in (x, residual, out, total)]
    add_rms_norm_kernel[(min(n_rows, PROGRAMS),)](
        x, residual, weight, out, total, n_rows, n_cols, *strides
    )
    return out, total
