# gpu-programming/triton-kernels/add_rms_norm.py | two mistakes | (1) In add_rms_norm_kernel the mean square is reduced by the square of the mean, power / n_cols - mean * mean, as in LayerNorm: out is wrong in nearly every case, worst in short rows and in rows far from 0; it should be power / n_cols alone. (2) In add_rms_norm the launch passes out.stride(0) also for stride_total: total lands in wrong places where the row strides of out and total differ; it should be total.stride(0).
"""Add the residual and normalise the rows of the sum, autotuned."""

import torch
import triton
import triton.language as tl


def tile_config(tile, warps):
    return triton.Config({"TILE": tile}, num_warps=warps)


CONFIGS = [
    tile_config(1024, 4),
    tile_config(2048, 8),
    tile_config(4096, 8),
    tile_config(4096, 16),
    tile_config(8192, 16),
    tile_config(16384, 16),
    tile_config(16384, 32),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


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
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    residual_ptr += row * stride_residual
    out_ptr += row * stride_out
    total_ptr += row * stride_total

    # One pass for the statistics of the row ...
    level = tl.zeros((TILE,), dtype=tl.float32)
    power = tl.zeros((TILE,), dtype=tl.float32)
    for t in range(TILES):
        offs = t * TILE + tl.arange(0, TILE)
        ok = offs < n_cols
        a = tl.load(x_ptr + offs, mask=ok, other=0.0).to(tl.float32)
        b = tl.load(residual_ptr + offs, mask=ok, other=0.0).to(tl.float32)
        level += a + b
        power += (a + b) * (a + b)
    mean = tl.sum(level, axis=0) / n_cols
    rstd = tl.rsqrt(tl.sum(power, axis=0) / n_cols - mean * mean + eps)

    # ... and one for the results.
    for t in range(TILES):
        offs = t * TILE + tl.arange(0, TILE)
        ok = offs < n_cols
        a = tl.load(x_ptr + offs, mask=ok, other=0.0).to(tl.float32)
        b = tl.load(residual_ptr + offs, mask=ok, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + offs, mask=ok, other=0.0).to(tl.float32)
        tl.store(total_ptr + offs, a + b, mask=ok)
        tl.store(out_ptr + offs, (a + b) * rstd * w, mask=ok)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """out and total, in this order; they go to the tensors that are given."""
    if out is None:
        out = x.new_empty(x.shape)
    if total is None:
        total = x.new_empty(x.shape)
    n_rows, n_cols = x.size(0), x.size(1)
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), out.stride(0),
        eps=1e-5,
    )  # fmt: skip
    return out, total
