# gpu-programming/triton-kernels/add_rms_norm.py | contract | In `add_rms_norm`, `x.new_empty_strided(x.size(), x.stride())` for both `out` and `total`: where no result is given and the rows of x have gaps, the returned tensors have the row stride of x and are not contiguous, while the README asks for new contiguous tensors. Should be `torch.empty(x.shape, ...)`. Numbers are right; shows in 5 x 127 fp16 with padded x and no `out`/`total`.
"""Residual addition and RMS normalisation on tiles of one long row or of several short ones, autotuned."""

import torch
import triton
import triton.language as tl

EPS = 1e-5
CONFIGS = [
    triton.Config({"AREA": area}, num_stages=1, num_warps=warps)
    for area, warps in ((1024, 4), (2048, 4), (4096, 4), (4096, 8), (8192, 8), (16384, 16))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest one."""
    size = min(triton.next_power_of_2(named_args["n_cols"]), 16384)
    return [config for config in configs if size <= config.kwargs["AREA"] <= max(4 * size, 2048)]


def width(args):
    """Columns of a tile."""
    return min(triton.next_power_of_2(args["n_cols"]), args["AREA"])


HEURISTICS = {
    "COLS": width,
    "ROWS": lambda args: args["AREA"] // width(args),
    "TILES": lambda args: triton.cdiv(args["n_cols"], width(args)),
}


@triton.jit
def load_sum(x_rows, residual_rows, cols, mask, dtype: tl.constexpr):
    """x + residual of a tile, rounded to `dtype` and back to fp32; 0 where the mask is false."""
    x = tl.load(x_rows + cols, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(residual_rows + cols, mask=mask, other=0.0).to(tl.float32)
    return (x + residual).to(dtype).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_rows", "n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics(HEURISTICS)
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_rows, n_cols,
    stride_x, stride_residual, stride_out, stride_total,  # elements from one row to the next
    eps,
    AREA: tl.constexpr, COLS: tl.constexpr, ROWS: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight for ROWS rows."""
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, COLS)[None, :]
    x_rows = x_ptr + rows * stride_x
    residual_rows = residual_ptr + rows * stride_residual
    out_rows = out_ptr + rows * stride_out
    total_rows = total_ptr + rows * stride_total

    squares = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for tile in range(TILES):
        cols = tile * COLS + lanes
        total = load_sum(x_rows, residual_rows, cols, (rows < n_rows) & (cols < n_cols), dtype)
        squares += total * total
    mean = tl.sum(squares, axis=1, keep_dims=True) / n_cols
    rstd = 1.0 / tl.sqrt(mean + eps)

    for tile in range(TILES):
        cols = tile * COLS + lanes
        mask = (rows < n_rows) & (cols < n_cols)
        total = load_sum(x_rows, residual_rows, cols, mask, dtype)
        weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(total_rows + cols, total.to(dtype), mask=mask)
        tl.store(out_rows + cols, (total * rstd * weight).to(dtype), mask=mask)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty_strided(x.size(), x.stride())
    if total is None:
        total = x.new_empty_strided(x.size(), x.stride())

    def grid(meta):
        return (triton.cdiv(n_rows, meta["ROWS"]),)

    add_rms_norm_kernel[grid](
        x, residual, weight, out, total, n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), EPS,
    )  # fmt: skip
    return out, total
