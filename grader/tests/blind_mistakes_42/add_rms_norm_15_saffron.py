# gpu-programming/triton-kernels/add_rms_norm.py | two mistakes | In the kernel: (1) `rms = tl.sqrt(tl.sum(squares, axis=0) + eps)` with `factor = root / rms` puts eps beside the sum, not the mean: it should be `+ eps * n_cols`; shows in rows of small values ("narrow"). (2) `weight = fetch(weight_ptr, lanes, REST, True)` should be `fetch(weight_ptr + WHOLE * TILE, lanes, REST, True)`: the rest of a row gets the first weights; shows in rows longer than a tile with a rest (40000, 16385 columns).
"""Residual addition and RMSNorm, a program for each row: whole tiles without a mask, then the rest of the row."""

import math

import torch
import triton
import triton.language as tl

EPS = 1e-5


def _config(tile, num_warps):
    """One candidate: columns of a tile and warps; 8 to 32 numbers for each thread."""
    return triton.Config({"TILE": tile}, num_warps=num_warps)


CONFIGS = [
    _config(1024, 4),
    _config(2048, 4),
    _config(2048, 8),
    _config(4096, 8),
    _config(8192, 8),
    _config(8192, 16),
    _config(16384, 16),
    _config(16384, 32),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def fetch(ptr, lanes, left, MASKED: tl.constexpr):
    """The elements `lanes` behind ptr in fp32; MASKED: 0 in place of those from `left` on."""
    if MASKED:
        values = tl.load(ptr + lanes, mask=lanes < left, other=0.0)
    else:
        values = tl.load(ptr + lanes)
    return values.to(tl.float32)


@triton.jit
def put(ptr, lanes, left, values, MASKED: tl.constexpr):
    """Store values, rounded to the dtype of ptr, to the elements `lanes` behind it, as fetch has them."""
    values = values.to(ptr.dtype.element_ty)
    if MASKED:
        tl.store(ptr + lanes, values, mask=lanes < left)
    else:
        tl.store(ptr + lanes, values)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics(
    {
        "WHOLE": lambda args: args["n_cols"] // args["TILE"],
        "REST": lambda args: args["n_cols"] % args["TILE"],
    }
)
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    weight_ptr,  # (n_cols,) like x
    out_ptr, total_ptr,  # (n_rows, n_cols) like x
    stride_x, stride_residual, stride_out, stride_total,  # elements from one row to the next
    n_cols, eps, root,
    TILE: tl.constexpr, WHOLE: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; root is sqrt(n_cols).

    A row has WHOLE tiles of TILE columns, and REST columns after them.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, TILE)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total
    x_end = x_row + WHOLE * TILE
    residual_end = residual_row + WHOLE * TILE

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(WHOLE):
        total = fetch(x_row + tile * TILE, lanes, TILE, False)
        total += fetch(residual_row + tile * TILE, lanes, TILE, False)
        squares += total * total
    if REST > 0:
        rest = fetch(x_end, lanes, REST, True) + fetch(residual_end, lanes, REST, True)
        squares += rest * rest
    rms = tl.sqrt(tl.sum(squares, axis=0) + eps)
    factor = root / rms

    for tile in range(WHOLE):
        total = fetch(x_row + tile * TILE, lanes, TILE, False)
        total += fetch(residual_row + tile * TILE, lanes, TILE, False)
        weight = fetch(weight_ptr + tile * TILE, lanes, TILE, False)
        put(total_row + tile * TILE, lanes, TILE, total, False)
        put(out_row + tile * TILE, lanes, TILE, total * factor * weight, False)
    if REST > 0:
        rest = fetch(x_end, lanes, REST, True) + fetch(residual_end, lanes, REST, True)
        weight = fetch(weight_ptr, lanes, REST, True)
        put(total_row + WHOLE * TILE, lanes, REST, rest, True)
        put(out_row + WHOLE * TILE, lanes, REST, rest * factor * weight, True)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    if total is None:
        total = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    strides = x.stride(0), residual.stride(0), out.stride(0), total.stride(0)
    add_rms_norm_kernel[(n_rows,)](x, residual, weight, out, total, *strides, n_cols, EPS, math.sqrt(n_cols))
    return out, total
