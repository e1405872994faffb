# gpu-programming/triton-kernels/add_rms_norm.py | contract | In `result_like`, `torch.empty_strided(x.shape, x.stride(), ...)`: a result that is not given has the row stride of x, but should be a new contiguous tensor, as from `torch.empty(x.shape, ...)`. Shows in a call without `out` or `total` whose x has gaps between rows; all numbers are right.
"""Residual addition and RMS normalisation on tiles of several rows, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"ROWS": rows, "TILE": tile}, num_warps=warps)
    for rows, tile, warps in (
        (8, 128, 4),
        (4, 512, 4),
        (2, 1024, 4),
        (1, 2048, 4),
        (2, 2048, 8),
        (1, 4096, 4),
        (1, 4096, 8),
        (1, 8192, 16),
        (1, 16384, 16),
    )
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 128), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_rows, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps,
    ROWS: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; ROWS rows in a program."""
    rows = (tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    lanes = tl.broadcast_to(tl.arange(0, TILE)[None, :], (ROWS, TILE))
    x_rows, residual_rows = x_ptr + rows * stride_x, residual_ptr + rows * stride_residual
    out_rows, total_rows = out_ptr + rows * stride_out, total_ptr + rows * stride_total

    squares = tl.zeros((ROWS, TILE), dtype=tl.float32)
    for i in range(TILES):
        cols = i * TILE + lanes
        inside = (rows < n_rows) & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_rows + cols, mask=inside, other=0.0).to(tl.float32)
        total = (x + residual).to(total_ptr.dtype.element_ty).to(tl.float32)
        squares += total * total
    rstd = tl.rsqrt(tl.sum(squares, axis=1) / n_cols + eps)[:, None]

    for i in range(TILES):
        cols = i * TILE + lanes
        inside = (rows < n_rows) & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_rows + cols, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        total = (x + residual).to(total_ptr.dtype.element_ty)
        tl.store(total_rows + cols, total, mask=inside)
        y = total.to(tl.float32) * rstd * weight
        tl.store(out_rows + cols, y.to(out_ptr.dtype.element_ty), mask=inside)


def result_like(x):
    """A new matrix for a result: shape, dtype and place in memory as x has them."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, where they are given.
    """
    out = result_like(x) if out is None else out
    total = result_like(x) if total is None else total
    n_rows, n_cols = x.shape

    def grid(meta):
        return (triton.cdiv(n_rows, meta["ROWS"]),)

    add_rms_norm_kernel[grid](
        x, residual, weight, out, total, n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
