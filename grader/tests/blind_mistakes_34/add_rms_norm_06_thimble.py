# gpu-programming/triton-kernels/add_rms_norm.py | right | right
"""Residual addition and RMSNorm, row by row: up the row for the sum of squares, down again for the results."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (8192, 8), (8192, 16), (16384, 16))
]


def fitting(configs, named_args, **kwargs):
    """One tile for a whole row if there is one, and its half; the widest two for long rows."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if config.kwargs["TILE"] in (size // 2, size)]


@triton.jit
def add(a, b):
    """a + b, added in fp32 and rounded once to the dtype of a."""
    return (a.to(tl.float32) + b.to(tl.float32)).to(a.dtype)


@triton.jit
def scaled(total, r, w):
    return (total.to(tl.float32) * r * w.to(tl.float32)).to(total.dtype)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr,
):  # fmt: skip
    """Program i owns row i: full tiles up to `last`, and from there one tile with 1 to TILE columns.

    That last tile stays in registers between the two sweeps. So a row of one tile is read once.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    residual_ptr += row * stride_residual
    out_ptr += row * stride_out
    total_ptr += row * stride_total

    lanes = tl.arange(0, TILE)
    last = (n_cols - 1) // TILE * TILE
    squares = tl.zeros((TILE,), dtype=tl.float32)
    for start in range(0, last, TILE):
        cols = start + lanes
        total = add(tl.load(x_ptr + cols), tl.load(residual_ptr + cols)).to(tl.float32)
        squares += total * total

    ends = last + lanes
    inside = ends < n_cols
    tail = add(
        tl.load(x_ptr + ends, mask=inside, other=0.0), tl.load(residual_ptr + ends, mask=inside, other=0.0)
    )
    squares += tail.to(tl.float32) * tail.to(tl.float32)
    r = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)

    tl.store(total_ptr + ends, tail, mask=inside)
    tl.store(out_ptr + ends, scaled(tail, r, tl.load(weight_ptr + ends, mask=inside, other=0.0)), mask=inside)

    # Backwards: what was read last is the most likely to be in the cache still.
    for done in range(0, last, TILE):
        cols = last - TILE - done + lanes
        total = add(tl.load(x_ptr + cols), tl.load(residual_ptr + cols))
        tl.store(total_ptr + cols, total)
        tl.store(out_ptr + cols, scaled(total, r, tl.load(weight_ptr + cols)))


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """out = total / sqrt(mean(total²) + 1e-5) * weight and total = x + residual, in this order."""
    out, total = [
        torch.empty(x.shape, dtype=x.dtype, device=x.device) if given is None else given for given in (out, total)
    ]
    n_rows, n_cols = x.shape
    strides = [matrix.stride(0) for matrix in (x, residual, out, total)]
    add_rms_norm_kernel[(n_rows,)](x, residual, weight, out, total, n_cols, *strides, 1e-5)
    return out, total
