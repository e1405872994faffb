# gpu-programming/triton-kernels/add_rms_norm.py | contract | add_rms_norm: a result that is not given comes from aligned_like, `torch.empty_strided(..., (pitch, 1))` with the row stride rounded up to a multiple of 8; the README asks for a new contiguous tensor; the numbers are right, but where out or total is not given, n_cols is no multiple of 8 and there are two rows or more, what is returned is not contiguous; it should be torch.empty(x.shape, dtype=x.dtype, device=x.device)
"""total = x + residual and out = its RMSNorm times weight, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": 1024}, num_warps=2),
    triton.Config({"TILE": 1024}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=4),
    triton.Config({"TILE": 4096}, num_warps=4),
    triton.Config({"TILE": 4096}, num_warps=8),
    triton.Config({"TILE": 8192}, num_warps=8),
    triton.Config({"TILE": 16384}, num_warps=16),
]


def fitting(configs, named_args, **kwargs):
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
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    residual_ptr += row * stride_residual
    out_ptr += row * stride_out
    total_ptr += row * stride_total

    acc = tl.zeros((TILE,), dtype=tl.float32)
    for i in range(TILES):
        c = i * TILE + tl.arange(0, TILE)
        t = tl.load(x_ptr + c, mask=c < n_cols, other=0.0).to(tl.float32)
        t += tl.load(residual_ptr + c, mask=c < n_cols, other=0.0).to(tl.float32)
        t = t.to(total_ptr.dtype.element_ty).to(tl.float32)
        acc += t * t
    scale = tl.rsqrt(tl.sum(acc, axis=0) / n_cols + eps)

    for i in range(TILES):
        c = i * TILE + tl.arange(0, TILE)
        t = tl.load(x_ptr + c, mask=c < n_cols, other=0.0).to(tl.float32)
        t += tl.load(residual_ptr + c, mask=c < n_cols, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + c, mask=c < n_cols, other=0.0).to(tl.float32)
        rounded = t.to(total_ptr.dtype.element_ty)
        tl.store(total_ptr + c, rounded, mask=c < n_cols)
        tl.store(out_ptr + c, (rounded.to(tl.float32) * scale * w).to(out_ptr.dtype.element_ty), mask=c < n_cols)


def aligned_like(x):
    """A new matrix like x, each row of which begins where a load of 8 numbers may begin."""
    n_rows, n_cols = x.shape
    pitch = triton.cdiv(n_cols, 8) * 8
    return torch.empty_strided((n_rows, n_cols), (pitch, 1), dtype=x.dtype, device=x.device)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (out, total)."""
    if out is None:
        out = aligned_like(x)
    if total is None:
        total = aligned_like(x)
    n_rows, n_cols = x.shape
    strides = [tensor.stride(0) for tensor in (x, residual, out, total)]
    add_rms_norm_kernel[(n_rows,)](x, residual, weight, out, total, n_cols, *strides, 1e-5)
    return out, total
