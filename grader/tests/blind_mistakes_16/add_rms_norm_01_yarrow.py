# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | add_rms_norm_kernel, first loop: it adds up `a * a + b * b`, which lacks the cross term 2 * a * b of the square of the sum; it should be (a + b) * (a + b). out is wrong, total is right.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=tile // (32 * numbers))
    for tile in (1024, 2048, 4096, 8192, 16384)
    for numbers in (8, 16, 32)
    if tile // (32 * numbers) <= 32
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
    """total = x + residual, and total over its root mean square, times weight; program i owns row i."""
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual

    energy = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(TILES):
        here = tile * TILE + cols
        mask = here < n_cols
        a = tl.load(x_row + here, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(residual_row + here, mask=mask, other=0.0).to(tl.float32)
        energy += a * a + b * b
    r = tl.rsqrt(tl.sum(energy, axis=0) / n_cols + eps)

    for tile in range(TILES):
        here = tile * TILE + cols
        mask = here < n_cols
        a = tl.load(x_row + here, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(residual_row + here, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + here, mask=mask, other=0.0).to(tl.float32)
        total = (a + b).to(total_ptr.dtype.element_ty)
        tl.store(total_ptr + row * stride_total + here, total, mask=mask)
        scaled = total.to(tl.float32) * r * weight
        tl.store(out_ptr + row * stride_out + here, scaled.to(out_ptr.dtype.element_ty), mask=mask)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given.
    """
    out = torch.empty_like(x) if out is None else out
    total = torch.empty_like(x) if total is None else total
    n_rows, n_cols = x.shape
    strides = [tensor.stride(0) for tensor in (x, residual, out, total)]
    add_rms_norm_kernel[(n_rows,)](x, residual, weight, out, total, n_cols, *strides, 1e-5)
    return out, total
