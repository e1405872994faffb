# gpu-programming/triton-kernels/add_rms_norm.py | corner | In the last loop of `add_rms_norm_kernel`, `weight = tl.load(weight_ptr + cols, mask=mask, other=0.0)` has the mask of the last tile (`end < n_cols`) for columns of the earlier tiles, which all exist; it should have none. `out` is 0 (or undefined) in earlier tiles in the lanes that the last tile lacks; `total` is right. Shows only if a row has several tiles and its last one is not full: surely for rows above 16384 columns that no tile divides (16385, 40000), and below that if the autotuner takes the tile of half the row.
"""Residual addition and RMS normalisation; only the last tile of a row has a mask, and it stays in registers."""

import torch
import triton
import triton.language as tl


def _tile(columns, num_warps):
    return triton.Config({"TILE": columns}, num_warps=num_warps, num_stages=1)


CONFIGS = [
    _tile(1024, 2),
    _tile(1024, 4),
    _tile(2048, 4),
    _tile(2048, 8),
    _tile(4096, 8),
    _tile(4096, 16),
    _tile(8192, 16),
    _tile(16384, 16),
    _tile(16384, 32),
]


def fitting(configs, named_args, **kwargs):
    """A whole row in a tile where one is wide enough, or in two; else the widest tiles."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def rounded_sum(x, residual):
    """The sum in fp32, with the digits that the stored one has."""
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Program i owns row i: TILES - 1 whole tiles, and a last one that may be shorter."""
    row, lanes = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    dtype = out_ptr.dtype.element_ty

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(TILES - 1):
        cols = tile * TILE + lanes
        whole = rounded_sum(tl.load(x_row + cols), tl.load(residual_row + cols))
        squares += whole * whole

    end = (TILES - 1) * TILE + lanes
    mask = end < n_cols
    last = rounded_sum(
        tl.load(x_row + end, mask=mask, other=0.0), tl.load(residual_row + end, mask=mask, other=0.0)
    )
    squares += last * last
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)

    weight = tl.load(weight_ptr + end, mask=mask, other=0.0).to(tl.float32)
    tl.store(total_row + end, last.to(dtype), mask=mask)
    tl.store(out_row + end, (last * rstd * weight).to(dtype), mask=mask)

    # From the end to the beginning: the last tiles are still in the cache.
    for tile in range(TILES - 1):
        cols = (TILES - 2 - tile) * TILE + lanes
        whole = rounded_sum(tl.load(x_row + cols), tl.load(residual_row + cols))
        weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(total_row + cols, whole.to(dtype))
        tl.store(out_row + cols, (whole * rstd * weight).to(dtype))


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    rows, cols = x.shape
    results = [
        torch.empty((rows, cols), dtype=x.dtype, device=x.device) if given is None else given
        for given in (out, total)
    ]
    out, total = results
    add_rms_norm_kernel[(rows,)](
        x, residual, weight, out, total, cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
