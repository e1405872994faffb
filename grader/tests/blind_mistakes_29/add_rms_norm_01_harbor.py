# gpu-programming/triton-kernels/add_rms_norm.py | error | add_rms_norm_kernel: in the second loop `total.to(tl.float32) * rstd` multiplies a block (ROWS, TILE) by rstd of shape (ROWS,), which is broadcast along the columns and not along the rows; ROWS is 2 to 8 and never TILE, so the shapes do not fit and the kernel does not compile (nor run in the interpreter) in any case; it should be rstd[:, None]
"""x + residual and its RMSNorm; a program owns a few rows, tile by tile."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"ROWS": 8, "TILE": 256}, num_warps=4),
    triton.Config({"ROWS": 4, "TILE": 1024}, num_warps=8),
    triton.Config({"ROWS": 2, "TILE": 1024}, num_warps=4),
    triton.Config({"ROWS": 2, "TILE": 4096}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no wider than a row, rounded up, needs."""
    widest = max(triton.next_power_of_2(named_args["n_cols"]), 256)
    return [config for config in configs if config.kwargs["TILE"] <= widest]


@triton.jit
def summed(x_ptrs, residual_ptrs, inside):
    """x + residual of a tile, rounded as it is stored; 0 outside."""
    x = tl.load(x_ptrs, mask=inside, other=0.0)
    residual = tl.load(residual_ptrs, mask=inside, other=0.0)
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_rows, n_cols,
    stride_x, stride_residual, stride_out, stride_total,
    eps,
    ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, TILE)
    row_there = (rows < n_rows)[:, None]
    x_rows = x_ptr + rows[:, None] * stride_x
    residual_rows = residual_ptr + rows[:, None] * stride_residual
    out_rows = out_ptr + rows[:, None] * stride_out
    total_rows = total_ptr + rows[:, None] * stride_total

    squares = tl.zeros((ROWS, TILE), dtype=tl.float32)
    for start in range(0, n_cols, TILE):
        cols = start + lanes
        inside = row_there & (cols < n_cols)[None, :]
        total = summed(x_rows + cols[None, :], residual_rows + cols[None, :], inside).to(tl.float32)
        squares += total * total
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=1) / n_cols + eps)

    for start in range(0, n_cols, TILE):
        cols = start + lanes
        inside = row_there & (cols < n_cols)[None, :]
        weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        total = summed(x_rows + cols[None, :], residual_rows + cols[None, :], inside)
        tl.store(total_rows + cols[None, :], total, mask=inside)
        normed = total.to(tl.float32) * rstd * weight[None, :]
        tl.store(out_rows + cols[None, :], normed.to(out_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    n_rows, n_cols = x.shape
    out = x.new_empty(x.shape) if out is None else out
    total = x.new_empty(x.shape) if total is None else total
    add_rms_norm_kernel[lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)](
        x, residual, weight, out, total,
        n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0),
        1e-5,
    )  # fmt: skip
    return out, total
