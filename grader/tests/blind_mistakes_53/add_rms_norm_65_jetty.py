# gpu-programming/triton-kernels/add_rms_norm.py | right | Two-dimensional tiles: a program owns 1, 2 or 4 rows (fewer columns, more rows), with row numbers as an int64 column and sums with keep_dims; a row in one tile stays in registers, and for longer rows the second pass goes backwards through the tiles, from the one still in cache. Own contiguous allocation.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

# Rows of a program, columns of a tile, warps. A thread has 8 to 32 numbers of the tile, and 8 or more of a
# row of it, so that x, residual and weight are all loaded 16 bytes at a time in 16 bits.
SHAPES = (
    (4, 256, 1), (4, 512, 2), (2, 1024, 4), (1, 2048, 4), (1, 2048, 8), (1, 4096, 4), (1, 4096, 8), (1, 4096, 16),
    (1, 8192, 8), (1, 8192, 16), (1, 16384, 16), (1, 16384, 32),
)  # fmt: skip
CONFIGS = [triton.Config({"ROWS": rows, "TILE": tile}, num_warps=warps) for rows, tile, warps in SHAPES]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: those whose tile is the narrowest that holds a row, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 256), 16384)
    return [config for config in configs if config.kwargs["TILE"] == size]


@triton.jit
def summed(x_lines, residual_lines, cols, inside):
    """A tile of x + residual, rounded to their dtype and back in fp32; 0 outside of the matrix."""
    x = tl.load(x_lines + cols, mask=inside, other=0.0)
    residual = tl.load(residual_lines + cols, mask=inside, other=0.0)
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype).to(tl.float32)


@triton.jit
def finish(total, rstd, weight_ptr, out_lines, total_lines, cols, n_cols, inside):
    """Store a tile of both results."""
    weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(total_lines + cols, total.to(weight_ptr.dtype.element_ty), mask=inside)
    tl.store(out_lines + cols, (total * rstd * weight).to(weight_ptr.dtype.element_ty), mask=inside)


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
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; ROWS rows to a program.

    One tile stays in registers. Of several the second pass begins with the last one, which is still in cache.
    """
    lines = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, TILE)[None, :]
    exists = lines < n_rows
    x_lines = x_ptr + lines * stride_x
    residual_lines = residual_ptr + lines * stride_residual
    out_lines = out_ptr + lines * stride_out
    total_lines = total_ptr + lines * stride_total

    if TILES == 1:
        inside = exists & (lanes < n_cols)
        total = summed(x_lines, residual_lines, lanes, inside)
        mean = tl.sum(total * total, axis=1, keep_dims=True) / n_cols
        rstd = tl.rsqrt(mean + eps)
        finish(total, rstd, weight_ptr, out_lines, total_lines, lanes, n_cols, inside)
    else:
        power = tl.zeros((ROWS, TILE), dtype=tl.float32)
        for tile in range(TILES):
            cols = tile * TILE + lanes
            total = summed(x_lines, residual_lines, cols, exists & (cols < n_cols))
            power += total * total
        mean = tl.sum(power, axis=1, keep_dims=True) / n_cols
        rstd = tl.rsqrt(mean + eps)
        for done in range(TILES):
            cols = (TILES - 1 - done) * TILE + lanes
            inside = exists & (cols < n_cols)
            total = summed(x_lines, residual_lines, cols, inside)
            finish(total, rstd, weight_ptr, out_lines, total_lines, cols, n_cols, inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given;
    neither may share memory with an input, because the autotuner runs the kernel several times. After Zhang
    and Sennrich, arXiv:1910.07467.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if n_rows > 0:
        add_rms_norm_kernel[lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)](
            x, residual, weight, out, total, n_rows, n_cols,
            x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
        )  # fmt: skip
    return out, total
