# gpu-programming/triton-kernels/add_rms_norm.py | right | right
"""Residual addition and RMSNorm of a few rows at a time, autotuned; the second pass goes back from the end."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"ROWS": rows, "TILE": tile}, num_warps=warps)
    for rows, tile, warps in (
        (1, 1024, 4),
        (2, 1024, 4),
        (4, 1024, 4),
        (1, 2048, 4),
        (1, 2048, 8),
        (1, 4096, 8),
        (1, 4096, 16),
        (1, 8192, 8),
        (1, 8192, 16),
        (1, 16384, 16),
    )
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def added(x_rows, residual_rows, cols, inside, DTYPE: tl.constexpr):
    """A tile of x + residual in fp32, with the digits that DTYPE leaves, and 0 outside."""
    x = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_rows + cols, mask=inside, other=0.0).to(tl.float32)
    return (x + residual).to(DTYPE).to(tl.float32)


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
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight for ROWS rows of a program."""
    DTYPE: tl.constexpr = total_ptr.dtype.element_ty
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, TILE)[None, :]
    x_rows, residual_rows = x_ptr + rows * stride_x, residual_ptr + rows * stride_residual
    out_rows, total_rows = out_ptr + rows * stride_out, total_ptr + rows * stride_total

    squares = tl.zeros((ROWS, TILE), dtype=tl.float32)
    for tile in range(TILES):
        cols = tile * TILE + lanes
        total = added(x_rows, residual_rows, cols, (rows < n_rows) & (cols < n_cols), DTYPE)
        squares += total * total
    mean = tl.sum(squares, axis=1, keep_dims=True) / n_cols
    r = 1.0 / tl.sqrt(mean + eps)

    # What was read last is still in the cache: back from there.
    for step in range(TILES):
        cols = (TILES - 1 - step) * TILE + lanes
        inside = (rows < n_rows) & (cols < n_cols)
        total = added(x_rows, residual_rows, cols, inside, DTYPE)
        weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(total_rows + cols, total.to(DTYPE), mask=inside)
        tl.store(out_rows + cols, (total * r * weight).to(DTYPE), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)  # noqa: E731
    add_rms_norm_kernel[grid](
        x, residual, weight, out, total, n_rows, n_cols,
        stride_x=x.stride(0), stride_residual=residual.stride(0),
        stride_out=out.stride(0), stride_total=total.stride(0),
        eps=1e-5,
    )  # fmt: skip
    return out, total
