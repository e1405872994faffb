# gpu-programming/triton-kernels/add_rms_norm.py | error | add_rms_norm_kernel: the factors of the rows are expanded as r[None, :], shape (1, ROWS), and multiplied with a tile (ROWS, TILE): incompatible shapes, the kernel does not compile. It should be r[:, None].
"""Residual addition and RMS normalisation, four rows a program, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": tile, "ROWS": 4}, num_warps=warps)
    for tile, warps in ((512, 4), (1024, 4), (1024, 8), (2048, 8), (4096, 16))
]


def fitting(configs, named_args, **kwargs):
    """Tiles up to the width of the row, and always the narrowest."""
    limit = max(triton.next_power_of_2(named_args["n_cols"]), 512)
    return [config for config in configs if config.kwargs["TILE"] <= limit]


@triton.jit
def tile_of_sums(x_ptrs, residual_ptrs, mask):
    """x + residual as it is stored, in fp32; 0 outside."""
    a = tl.load(x_ptrs, mask=mask, other=0.0)
    b = tl.load(residual_ptrs, mask=mask, other=0.0)
    return (a.to(tl.float32) + b.to(tl.float32)).to(a.dtype).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_rows, n_cols,
    stride_x, stride_residual, stride_out, stride_total,
    eps,
    ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight for ROWS rows."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, TILE)
    real = (rows < n_rows)[:, None]
    x_rows = x_ptr + rows[:, None] * stride_x
    residual_rows = residual_ptr + rows[:, None] * stride_residual
    out_rows = out_ptr + rows[:, None] * stride_out
    total_rows = total_ptr + rows[:, None] * stride_total

    squares = tl.zeros((ROWS, TILE), dtype=tl.float32)
    for start in range(0, n_cols, TILE):
        cols = start + lanes
        mask = real & (cols < n_cols)[None, :]
        t = tile_of_sums(x_rows + cols[None, :], residual_rows + cols[None, :], mask)
        squares += t * t
    r = 1.0 / tl.sqrt(tl.sum(squares, axis=1) / n_cols + eps)

    for start in range(0, n_cols, TILE):
        cols = start + lanes
        mask = real & (cols < n_cols)[None, :]
        t = tile_of_sums(x_rows + cols[None, :], residual_rows + cols[None, :], mask)
        w = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = t * r[None, :] * w[None, :]
        tl.store(total_rows + cols[None, :], t.to(total_ptr.dtype.element_ty), mask=mask)
        tl.store(out_rows + cols[None, :], y.to(out_ptr.dtype.element_ty), mask=mask)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    out = torch.empty_like(x) if out is None else out
    total = torch.empty_like(x) if total is None else total
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)](
        x, residual, weight, out, total,
        n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0),
        1e-5,
    )  # fmt: skip
    return out, total
