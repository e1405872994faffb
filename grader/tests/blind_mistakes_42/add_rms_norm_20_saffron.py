# gpu-programming/triton-kernels/add_rms_norm.py | right | Two-dimensional tiles of several rows for short rows, tl.reduce with an own combine function, one branch for rows that fit a tile and one with two loops, of which the second goes through the tiles from the end. The norm uses the unrounded sum, which the README allows.
"""Residual addition and RMSNorm by tiles of several rows, so that short rows share a program; autotuned."""

import torch
import triton
import triton.language as tl

EPS = 1e-5
NARROWEST, WIDEST = 128, 16384


def _config(rows, tile, num_warps):
    """One candidate: rows of a program, columns of a tile, warps; 8 to 32 numbers for each thread."""
    return triton.Config({"ROWS": rows, "TILE": tile}, num_warps=num_warps)


CONFIGS = [
    _config(16, 128, 4),
    _config(4, 512, 4),
    _config(1, 1024, 4),
    _config(1, 2048, 4),
    _config(2, 2048, 8),
    _config(1, 4096, 4),
    _config(1, 4096, 8),
    _config(1, 8192, 8),
    _config(1, 8192, 16),
    _config(1, 16384, 16),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles as wide as the row or half of it, the widest ones for longer rows."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), NARROWEST), WIDEST)
    return [config for config in configs if size <= 2 * config.kwargs["TILE"] <= 2 * size]


@triton.jit
def plus(a, b):
    """How the squares of a row are put together."""
    return a + b


@triton.jit
def scale_of(squares, n_cols, eps):
    """1 / sqrt(mean + eps) for each row, as a column, from a tile of sums of squares."""
    return tl.rsqrt(tl.reduce(squares, 1, plus) / n_cols + eps)[:, None]


@triton.autotune(configs=CONFIGS, key=["n_rows", "n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    weight_ptr,  # (n_cols,) like x
    out_ptr, total_ptr,  # (n_rows, n_cols) like x
    n_rows, n_cols, eps,
    stride_x, stride_residual, stride_out, stride_total,  # elements from one row to the next
    ROWS: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight, for ROWS rows a program."""
    rows = (tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    lanes = tl.arange(0, TILE)[None, :]
    x_rows = x_ptr + rows * stride_x
    residual_rows = residual_ptr + rows * stride_residual
    out_rows = out_ptr + rows * stride_out
    total_rows = total_ptr + rows * stride_total
    if TILES == 1:
        # The rows stay in registers between their sum and their results.
        inside = (rows < n_rows) & (lanes < n_cols)
        total = tl.load(x_rows + lanes, mask=inside, other=0.0).to(tl.float32)
        total += tl.load(residual_rows + lanes, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + lanes, mask=lanes < n_cols, other=0.0).to(tl.float32)
        scale = scale_of(total * total, n_cols, eps)
        tl.store(total_rows + lanes, total.to(total_ptr.dtype.element_ty), mask=inside)
        tl.store(out_rows + lanes, (total * scale * weight).to(out_ptr.dtype.element_ty), mask=inside)
    else:
        squares = tl.zeros((ROWS, TILE), dtype=tl.float32)
        for tile in range(TILES):
            cols = tile * TILE + lanes
            inside = (rows < n_rows) & (cols < n_cols)
            part = tl.load(x_rows + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
            part += tl.load(
                residual_rows + cols, mask=inside, other=0.0, eviction_policy="evict_last"
            ).to(tl.float32)
            squares += part * part
        scale = scale_of(squares, n_cols, eps)
        for back in range(TILES):
            cols = (TILES - 1 - back) * TILE + lanes  # from the end, which the cache has read last
            inside = (rows < n_rows) & (cols < n_cols)
            part = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
            part += tl.load(residual_rows + cols, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            tl.store(total_rows + cols, part.to(total_ptr.dtype.element_ty), mask=inside)
            tl.store(out_rows + cols, (part * scale * weight).to(out_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    if total is None:
        total = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)  # noqa: E731
    add_rms_norm_kernel[grid](
        x, residual, weight, out, total, n_rows, n_cols, EPS,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0),
    )  # fmt: skip
    return out, total
