# gpu-programming/triton-kernels/add_rms_norm.py | two mistakes | In the first loop of add_rms_norm_kernel `acc += a * a` squares x alone; it should square the sum, `(a + b) * (a + b)`. `total_row = total_ptr + row * stride_out` steps through total with the stride of out; it should be `row * stride_total`.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl


def config(tile, warps):
    """One candidate of the autotuner."""
    return triton.Config({"TILE": tile}, num_warps=warps)


CONFIGS = [
    config(1024, 1),
    config(1024, 4),
    config(2048, 4),
    config(2048, 8),
    config(4096, 4),
    config(4096, 8),
    config(8192, 8),
    config(8192, 16),
    config(16384, 16),
    config(16384, 32),
]
EPS = 1e-5


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr,
    weight_ptr,
    out_ptr, total_ptr,
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,
    eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i."""
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_out
    dtype = total_ptr.dtype.element_ty

    # sum of squares of the row
    acc = tl.zeros((TILE,), dtype=tl.float32)
    for t in range(TILES):
        c = t * TILE + cols
        a = tl.load(x_row + c, mask=c < n_cols, other=0.0).to(tl.float32)
        acc += a * a
    mean_square = tl.sum(acc, axis=0) / n_cols
    factor = 1.0 / tl.sqrt(mean_square + eps)

    # both results
    for t in range(TILES):
        c = t * TILE + cols
        inside = c < n_cols
        a = tl.load(x_row + c, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(residual_row + c, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + c, mask=inside, other=0.0).to(tl.float32)
        s = (a + b).to(dtype)
        tl.store(total_row + c, s, mask=inside)
        tl.store(out_row + c, (s.to(tl.float32) * factor * w).to(dtype), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    out = torch.empty_like(x) if out is None else out
    total = torch.empty_like(x) if total is None else total
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight,
        out, total,
        n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0),
        EPS,
    )  # fmt: skip
    return out, total
