# gpu-programming/triton-kernels/add_rms_norm.py | honest | Nothing is wrong: moving pointers, and the norm of the sum before rounding, which the README allows.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": 1024}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=8),
    triton.Config({"TILE": 4096}, num_warps=8),
    triton.Config({"TILE": 8192}, num_warps=16),
    triton.Config({"TILE": 16384}, num_warps=16),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    weight_ptr,  # (n_cols,) like x
    out_ptr, total_ptr,  # (n_rows, n_cols) like x
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,  # elements from one row to the next
    eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i.

    A row has TILES tiles of TILE columns. The norm is that of the sum before it is rounded.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, TILE)
    a = x_ptr + row * stride_x + lane
    b = residual_ptr + row * stride_residual + lane
    acc = tl.zeros((TILE,), dtype=tl.float32)
    left = n_cols
    for _ in range(TILES):
        t = tl.load(a, mask=lane < left, other=0.0).to(tl.float32)
        t += tl.load(b, mask=lane < left, other=0.0).to(tl.float32)
        acc += t * t
        a += TILE
        b += TILE
        left -= TILE
    norm = 1.0 / tl.sqrt(tl.sum(acc, axis=0) / n_cols + eps)
    a = x_ptr + row * stride_x + lane
    b = residual_ptr + row * stride_residual + lane
    w = weight_ptr + lane
    o = out_ptr + row * stride_out + lane
    s = total_ptr + row * stride_total + lane
    left = n_cols
    for _ in range(TILES):
        ok = lane < left
        t = tl.load(a, mask=ok, other=0.0).to(tl.float32) + tl.load(b, mask=ok, other=0.0).to(tl.float32)
        tl.store(s, t.to(total_ptr.dtype.element_ty), mask=ok)
        t *= norm * tl.load(w, mask=ok, other=0.0).to(tl.float32)
        tl.store(o, t.to(out_ptr.dtype.element_ty), mask=ok)
        a += TILE
        b += TILE
        w += TILE
        o += TILE
        s += TILE
        left -= TILE


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given;
    neither may share memory with an input, because the autotuner runs the kernel several times. After Zhang
    and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    total = torch.empty_like(x) if total is None else total
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )
    return out, total
