# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | In add_rms_norm_kernel tl.sum(squares) has no axis: it sums the squares of all 4 rows of the program into one number, which is divided by n_cols, so every row is scaled by 1/sqrt of the SUM of the mean squares of its group of 4 rows (too small by about a factor 2, sqrt(3) where 3 rows are left). It should be tl.sum(squares, axis=1), one number for each row, used as a column (rstd[:, None]). Wrong in out in every case with more than one row in a group (right for one row alone, as 1 row, or the last row of 5 or 149); total is right.
"""Residual addition and RMSNorm: four neighbouring rows in a program, tile by tile along them."""

import torch
import triton
import triton.language as tl

ROWS = 4

# Numbers of a tile for each thread: 16, or 32 in the second and the fourth.
CONFIGS = [
    triton.Config({"TILE": 512, "ROWS": ROWS}, num_warps=4),
    triton.Config({"TILE": 1024, "ROWS": ROWS}, num_warps=4),
    triton.Config({"TILE": 1024, "ROWS": ROWS}, num_warps=8),
    triton.Config({"TILE": 2048, "ROWS": ROWS}, num_warps=8),
    triton.Config({"TILE": 2048, "ROWS": ROWS}, num_warps=16),
]


def fitting(configs, named_args, **kwargs):
    """Tiles that the row fills, and for a row shorter than all of them the first."""
    return [config for config in configs if config.kwargs["TILE"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_rows, n_cols,
    stride_x, stride_residual, stride_out, stride_total,
    eps,
    ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Rows i * ROWS to (i + 1) * ROWS - 1 belong to program i."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row = row[:, None]
    exists = row < n_rows
    lanes = tl.arange(0, TILE)[None, :]

    x_rows = x_ptr + row * stride_x
    residual_rows = residual_ptr + row * stride_residual
    out_rows = out_ptr + row * stride_out
    total_rows = total_ptr + row * stride_total

    squares = tl.zeros((ROWS, TILE), dtype=tl.float32)
    for start in range(0, n_cols, TILE):
        cols = start + lanes
        valid = exists & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=valid, other=0.0).to(tl.float32)
        residual = tl.load(residual_rows + cols, mask=valid, other=0.0).to(tl.float32)
        t = x + residual
        squares += t * t
    mean = tl.sum(squares) / n_cols
    rstd = 1.0 / tl.sqrt(mean + eps)

    for start in range(0, n_cols, TILE):
        cols = start + lanes
        valid = exists & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=valid, other=0.0).to(tl.float32)
        residual = tl.load(residual_rows + cols, mask=valid, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        t = x + residual
        tl.store(total_rows + cols, t.to(total_ptr.dtype.element_ty), mask=valid)
        tl.store(out_rows + cols, (t * rstd * weight).to(out_ptr.dtype.element_ty), mask=valid)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of x and residual, and its RMSNorm with a weight for each column: out and total, in this order."""
    n_rows, n_cols = x.shape
    out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if out is None else out
    total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if total is None else total
    grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)  # noqa: E731
    add_rms_norm_kernel[grid](
        x, residual, weight, out, total, n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
