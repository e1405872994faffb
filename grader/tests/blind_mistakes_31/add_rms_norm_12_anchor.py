# gpu-programming/triton-kernels/add_rms_norm.py | two mistakes | (1) add_rms_norm_kernel adds eps to the sum of squares and divides both by n_cols, (sum + eps) / n_cols, so eps is n_cols times too small: it should be sum / n_cols + eps; out is too large for rows of small values (narrow, 7 x 1009, fp32 and fp16). (2) weight is loaded once, for the columns 0 to TILE - 1, before the loops, and the same values scale every tile: out is wrong behind the first tile of rows longer than TILE (2 x 40000 fp32, 2 x 16385 fp16, others where the config has two tiles); it should be loaded in the second loop at weight_ptr + cols. total is right
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

# (columns of a tile, warps)
TILES = [(1024, 4), (2048, 4), (4096, 8), (8192, 8), (16384, 16)]
CONFIGS = [triton.Config({"TILE": width}, num_warps=warps) for width, warps in TILES]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    total_ptr,
    n_cols,
    stride_x,
    stride_residual,
    stride_out,
    stride_total,
    eps,
    TILE: tl.constexpr,
):
    """total = x + residual, and out is total by its root mean square, times weight; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, TILE)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    weight = tl.load(weight_ptr + lanes, mask=lanes < n_cols, other=0.0).to(tl.float32)

    energy = tl.zeros((TILE,), dtype=tl.float32)
    for start in range(0, n_cols, TILE):
        cols = start + lanes
        inside = cols < n_cols
        a = tl.load(x_row + cols, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(residual_row + cols, mask=inside, other=0.0).to(tl.float32)
        both = (a + b).to(total_ptr.dtype.element_ty).to(tl.float32)
        energy += both * both
    scale = tl.rsqrt((tl.sum(energy, axis=0) + eps) / n_cols)

    for start in range(0, n_cols, TILE):
        cols = start + lanes
        inside = cols < n_cols
        a = tl.load(x_row + cols, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(residual_row + cols, mask=inside, other=0.0).to(tl.float32)
        both = (a + b).to(total_ptr.dtype.element_ty)
        tl.store(total_ptr + row * stride_total + cols, both, mask=inside)
        y = both.to(tl.float32) * scale * weight
        tl.store(out_ptr + row * stride_out + cols, y.to(out_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
