# gpu-programming/triton-kernels/add_rms_norm.py | corner | the weight is loaded once, before the loop, at `weight_ptr + lanes`, and serves every tile; must be loaded for each tile at weight_ptr + start + lanes. Shows in rows longer than a tile (4096): from the second tile on out has the weights of the first columns.
"""total = x + residual and its RMS norm, one program a row."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": 1024}, num_warps=2),
    triton.Config({"TILE": 1024}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=8),
    triton.Config({"TILE": 4096}, num_warps=8),
    triton.Config({"TILE": 4096}, num_warps=16),
]


def one_width(configs, named_args, **kwargs):
    """The narrowest tile that holds the row, or else the widest of all."""
    wanted = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 4096)
    return [config for config in configs if config.kwargs["TILE"] == wanted]


@triton.jit
def added(x_row, residual_row, at, n_cols):
    """x + residual, rounded as it is stored."""
    a = tl.load(x_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
    b = tl.load(residual_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
    return (a + b).to(x_row.dtype.element_ty)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": one_width})
@triton.jit
def norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols, sx, sr, so, st, EPS: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * sx
    residual_row = residual_ptr + row * sr
    out_row = out_ptr + row * so
    total_row = total_ptr + row * st
    lanes = tl.arange(0, TILE)
    # the same for all rows, and so in the cache
    weight = tl.load(weight_ptr + lanes, mask=lanes < n_cols, other=0.0).to(tl.float32)
    energy = 0.0
    for start in range(0, n_cols, TILE):
        t = added(x_row, residual_row, start + lanes, n_cols).to(tl.float32)
        energy += tl.sum(t * t, axis=0)
    scale = 1.0 / tl.sqrt(energy / n_cols + EPS)
    for start in range(0, n_cols, TILE):
        at = start + lanes
        t = added(x_row, residual_row, at, n_cols)
        tl.store(total_row + at, t, mask=at < n_cols)
        normed = t.to(tl.float32) * scale * weight
        tl.store(out_row + at, normed.to(out_ptr.dtype.element_ty), mask=at < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    strides = [t.stride(0) for t in (x, residual, out, total)]
    norm_kernel[(n_rows,)](x, residual, weight, out, total, n_cols, *strides, EPS=1e-5)
    return out, total
