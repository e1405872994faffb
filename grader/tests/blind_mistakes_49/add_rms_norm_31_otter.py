# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | In `add_rms_norm_kernel`, `normed * (1.0 + weight)` (the formula of another model family, whose stored weight is an offset from 1) should be `normed * weight`. `out` is wrong in all cases; `total` is right.
"""Residual addition and RMS normalisation, on tiles of several short rows or of one long one, autotuned."""

import torch
import triton
import triton.language as tl


def _config(rows, tile, num_warps):
    """One candidate: rows and columns of a tile, powers of two, 8 to 32 numbers for each thread."""
    return triton.Config({"ROWS": rows, "TILE": tile}, num_warps=num_warps, num_stages=1)


CONFIGS = [
    _config(4, 256, 4),
    _config(2, 1024, 4),
    _config(1, 1024, 4),
    _config(1, 2048, 4),
    _config(1, 4096, 8),
    _config(1, 8192, 8),
    _config(1, 8192, 16),
    _config(1, 16384, 16),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a tile as wide as the row or half of it, the widest ones for a long row."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 256), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def added(x_rows, residual_rows, cols, inside):
    """A tile of x + residual, rounded to the dtype as it is stored, and taken back to fp32."""
    x = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_rows + cols, mask=inside, other=0.0).to(tl.float32)
    return (x + residual).to(x_rows.dtype.element_ty).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    weight_ptr,  # (n_cols,) like x
    out_ptr, total_ptr,  # (n_rows, n_cols) like x
    n_rows, n_cols,
    stride_x, stride_residual, stride_out, stride_total,  # elements from one row to the next
    eps,
    ROWS: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Program i owns ROWS rows from i * ROWS on; a row has TILES tiles of TILE columns."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = (rows < n_rows)[:, None]
    lanes = tl.arange(0, TILE)[None, :]
    x_rows = x_ptr + (rows * stride_x)[:, None]
    residual_rows = residual_ptr + (rows * stride_residual)[:, None]
    out_rows = out_ptr + (rows * stride_out)[:, None]
    total_rows = total_ptr + (rows * stride_total)[:, None]

    squares = tl.zeros((ROWS, TILE), dtype=tl.float32)
    for tile in range(TILES):
        cols = tile * TILE + lanes
        total = added(x_rows, residual_rows, cols, exists & (cols < n_cols))
        squares += total * total
    rstd = tl.rsqrt(tl.sum(squares, axis=1) / n_cols + eps)[:, None]

    for tile in range(TILES):
        cols = tile * TILE + lanes
        inside = exists & (cols < n_cols)
        total = added(x_rows, residual_rows, cols, inside)
        weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        normed = total * rstd
        tl.store(total_rows + cols, total.to(total_ptr.dtype.element_ty), mask=inside)
        tl.store(out_rows + cols, (normed * (1.0 + weight)).to(out_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)  # noqa: E731
    add_rms_norm_kernel[grid](
        x, residual, weight, out, total, n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
