# gpu-programming/triton-kernels/add_rms_norm.py | corner | In add_rms_norm_kernel the mean of squares of a row of several tiles is the running mean of the tiles' means with equal weights (mean += (of_tile - mean) / (t + 1)), although the last tile may be shorter than TILE: each tile has to count by its width (sum of all squares divided by n_cols). Shows only in rows longer than 16384 columns that are not a whole number of tiles, as 40000 or 16385 columns (strongly where the last tile has few columns, as 16385; 24576 hardly in bf16); `out` is off by one factor a row, total is right. Rows of one tile, and 131072 columns, are right.
"""Residual addition and RMSNorm: a row in one tile where it fits, else tile by tile with a running mean."""

import torch
import triton
import triton.language as tl

NARROWEST, WIDEST = 1024, 16384
EPS = 1e-5

# (tile, warps): 8 to 32 numbers for each thread
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in (
        (1024, 1), (1024, 2), (1024, 4),
        (2048, 2), (2048, 4), (2048, 8),
        (4096, 4), (4096, 8), (4096, 16),
        (8192, 8), (8192, 16),
        (16384, 16), (16384, 32),
    )
]  # fmt: skip


def fitting(configs, named_args, **kwargs):
    """The tiles that are exactly as wide as the row's next power of two, within limits."""
    wanted = min(max(triton.next_power_of_2(named_args["n_cols"]), NARROWEST), WIDEST)
    return [config for config in configs if config.kwargs["TILE"] == wanted]


@triton.jit
def stored_sum(x_row, residual_row, cols, n_cols):
    """x + residual as the dtype of the tensors holds it, in fp32; 0 past the end of the row."""
    inside = cols < n_cols
    x = tl.load(x_row + cols, mask=inside, other=0.0)
    residual = tl.load(residual_row + cols, mask=inside, other=0.0)
    added = x.to(tl.float32) + residual.to(tl.float32)
    return added.to(x.dtype).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,
    eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Program i owns row i, which has TILES tiles of TILE columns."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total
    lanes = tl.arange(0, TILE)

    # A mean stays near its values, where the sum over a long row would grow with every tile.
    mean = 0.0
    for t in range(TILES):
        total = stored_sum(x_row, residual_row, t * TILE + lanes, n_cols)
        width = tl.minimum(n_cols - t * TILE, TILE)
        of_tile = tl.sum(total * total, axis=0) / width
        mean += (of_tile - mean) / (t + 1)
    rstd = tl.rsqrt(mean + eps)

    for t in range(TILES):
        cols = t * TILE + lanes
        inside = cols < n_cols
        total = stored_sum(x_row, residual_row, cols, n_cols)
        weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(total_row + cols, total.to(total_ptr.dtype.element_ty), mask=inside)
        tl.store(out_row + cols, (total * rstd * weight).to(out_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, total): total = x + residual, and out = total over its root mean square, times weight, by rows."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total,
        n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0),
        EPS,
    )  # fmt: skip
    return out, total
