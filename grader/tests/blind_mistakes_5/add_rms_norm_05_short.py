# gpu-programming/triton-kernels/add_rms_norm.py | error | The launch passes TILE=... although the autotuner's configs set TILE, too: with several configs Triton raises ValueError, conflicting meta-parameters: TILE, with a single one TypeError, multiple values for keyword argument 'TILE'; it must be left to the autotuner.
"""x + residual and its RMSNorm, fused. Helpers keep the two loops short."""

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
EPS = tl.constexpr(1e-5)


def fitting(configs, named_args, **kwargs):
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def summed(x_row, r_row, c, n_cols):
    """One tile of x + residual in the dtype of x, 0 past the end."""
    a = tl.load(x_row + c, mask=c < n_cols, other=0.0)
    b = tl.load(r_row + c, mask=c < n_cols, other=0.0)
    return (a.to(tl.float32) + b.to(tl.float32)).to(x_row.dtype.element_ty)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
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
    TILE: tl.constexpr,
    TILES: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    r_row = residual_ptr + row * stride_residual
    o_row = out_ptr + row * stride_out
    t_row = total_ptr + row * stride_total

    acc = 0.0
    for i in range(TILES):
        c = i * TILE + tl.arange(0, TILE)
        t = summed(x_row, r_row, c, n_cols).to(tl.float32)
        acc += tl.sum(t * t, axis=0)
    scale = tl.rsqrt(acc / n_cols + EPS)

    for i in range(TILES):
        c = i * TILE + tl.arange(0, TILE)
        t = summed(x_row, r_row, c, n_cols)
        w = tl.load(weight_ptr + c, mask=c < n_cols, other=0.0).to(tl.float32)
        y = t.to(tl.float32) * scale * w
        tl.store(t_row + c, t, mask=c < n_cols)
        tl.store(o_row + c, y.to(out_ptr.dtype.element_ty), mask=c < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    if out is None:
        out = torch.empty_like(x)
    if total is None:
        total = torch.empty_like(x)
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x,
        residual,
        weight,
        out,
        total,
        n_cols,
        x.stride(0),
        residual.stride(0),
        out.stride(0),
        total.stride(0),
        TILE=min(triton.next_power_of_2(n_cols), 16384),
    )
    return out, total
