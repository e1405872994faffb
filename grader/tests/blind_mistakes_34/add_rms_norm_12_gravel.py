# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | in add_rms_norm_kernel, `rms = tl.rsqrt(...)` is already 1 / sqrt(mean + eps), and the result divides by it: `total / rms * weight` is total * sqrt(mean + eps) * weight, so each row of out is off by the factor mean(total²) + eps; wrong in every case except in a row whose mean square is about 1; total is right. It should be `total * rms * weight`, or rms = tl.sqrt(...)
"""Residual addition and RMSNorm in one kernel, for rows of any length."""

import torch
import triton
import triton.language as tl


def _config(tile, warps):
    return triton.Config({"TILE": tile}, num_warps=warps)


CONFIGS = [
    _config(512, 4),
    _config(1024, 4),
    _config(2048, 4),
    _config(4096, 8),
    _config(8192, 8),
    _config(16384, 16),
]


def fitting(configs, named_args, **kwargs):
    """The narrowest tile that holds a row, and the one below it; the two widest where no tile does."""
    below = len([config for config in configs if config.kwargs["TILE"] < named_args["n_cols"]])
    return configs[max(min(below, len(configs) - 1) - 1, 0) :][:2]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_cols, stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr,
):  # fmt: skip
    """Program i owns row i, and passes over it twice."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptrs = x_ptr + row * stride_x + tl.arange(0, TILE)
    residual_ptrs = residual_ptr + row * stride_residual + tl.arange(0, TILE)
    out_ptrs = out_ptr + row * stride_out + tl.arange(0, TILE)
    total_ptrs = total_ptr + row * stride_total + tl.arange(0, TILE)
    weight_ptrs = weight_ptr + tl.arange(0, TILE)

    sums = tl.zeros((TILE,), dtype=tl.float32)
    for start in range(0, n_cols, TILE):
        left = tl.arange(0, TILE) < n_cols - start
        x = tl.load(x_ptrs + start, mask=left, other=0.0)
        residual = tl.load(residual_ptrs + start, mask=left, other=0.0)
        total = x.to(tl.float32) + residual.to(tl.float32)
        total = total.to(x.dtype).to(tl.float32)
        sums += total * total
    rms = tl.rsqrt(tl.sum(sums, axis=0) / n_cols + eps)

    for start in range(0, n_cols, TILE):
        left = tl.arange(0, TILE) < n_cols - start
        x = tl.load(x_ptrs + start, mask=left, other=0.0)
        residual = tl.load(residual_ptrs + start, mask=left, other=0.0)
        weight = tl.load(weight_ptrs + start, mask=left, other=0.0).to(tl.float32)
        total = x.to(tl.float32) + residual.to(tl.float32)
        total = total.to(x.dtype).to(tl.float32)
        tl.store(total_ptrs + start, total.to(x.dtype), mask=left)
        tl.store(out_ptrs + start, (total / rms * weight).to(x.dtype), mask=left)


def result(x, given):
    """The tensor that was given, or a new contiguous one."""
    return given if given is not None else torch.empty(x.shape, dtype=x.dtype, device=x.device)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm of x + residual with weight, and x + residual."""
    n_rows, n_cols = x.shape

    out, total = result(x, out), result(x, total)
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
