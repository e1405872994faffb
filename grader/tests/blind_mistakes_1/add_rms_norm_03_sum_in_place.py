# gpu-programming/triton-kernels/add_rms_norm.py | contract | The first loop also stores the sum into residual (tl.store(residual_row + at, ...)), as fused kernels of other libraries do, and the second loop reads it back from there: out and total of one run are right, but the input residual is overwritten with x + residual | "do not write to an input" / "Inputs are read-only"; all inputs (on a GPU with autotuning the repeated trials also add x several times)
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": 1024}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=4),
    triton.Config({"TILE": 4096}, num_warps=8),
    triton.Config({"TILE": 8192}, num_warps=8),
    triton.Config({"TILE": 16384}, num_warps=16),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_cols, stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total
    cols = tl.arange(0, TILE)
    var = tl.zeros([TILE], dtype=tl.float32)
    for off in range(0, n_cols, TILE):
        at = off + cols
        mask = at < n_cols
        x = tl.load(x_row + at, mask=mask, other=0.0).to(tl.float32)
        s = x + tl.load(residual_row + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(residual_row + at, s, mask=mask)
        tl.store(total_row + at, s, mask=mask)
        var += s * s
    rstd = 1.0 / tl.sqrt(tl.sum(var, axis=0) / n_cols + eps)
    for off in range(0, n_cols, TILE):
        at = off + cols
        mask = at < n_cols
        s = tl.load(residual_row + at, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_row + at, s * rstd * w, mask=mask)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    if out is None:
        out = torch.empty_like(x)
    if total is None:
        total = torch.empty_like(x)
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total,
        n_cols, x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
