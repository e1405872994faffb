# gpu-programming/triton-kernels/add_rms_norm.py | corner | In `add_rms_norm_kernel`, the second loop of the branch for several tiles goes from the last tile to the first, `cols = (TILES - 1 - i) * TILE + lanes`, but its mask is `keep = i * TILE + lanes < n_cols`, that of the tile with the same number from the start; it should be `keep = cols < n_cols`. It shows only in rows of several tiles that are no multiple of the tile (40000, 16385; 24576 with tiles of 16384; 1536, 2600, 3001 with the narrower of the configs tried, which makes two tiles): reads and writes past the end of the row, and the end of the first tile is not written. Rows in one tile, and whole multiples, are right.
"""Residual addition and RMS normalisation: short rows stay in registers, long ones are read twice."""

import torch
import triton
import triton.language as tl

# (columns of a tile, warps): 8 to 32 numbers for each thread.
TILES_AND_WARPS = (
    (1024, 4),
    (2048, 4),
    (2048, 8),
    (4096, 8),
    (4096, 16),
    (8192, 16),
    (16384, 16),
    (16384, 32),
)
CONFIGS = [triton.Config({"TILE": tile}, num_warps=warps) for tile, warps in TILES_AND_WARPS]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def sum_of(x_row, residual_row, cols, keep):
    """x + residual, rounded to their dtype as it will be stored, and back in fp32; 0 past the end."""
    x = tl.load(x_row + cols, mask=keep, other=0.0)
    residual = tl.load(residual_row + cols, mask=keep, other=0.0)
    total = x.to(tl.float32) + residual.to(tl.float32)
    return total.to(x.dtype).to(tl.float32)


@triton.jit
def store_both(out_row, total_row, weight_ptr, total, factor, cols, keep):
    """A tile of total, and of total * factor * weight."""
    weight = tl.load(weight_ptr + cols, mask=keep, other=0.0).to(tl.float32)
    tl.store(total_row + cols, total.to(total_row.dtype.element_ty), mask=keep)
    tl.store(out_row + cols, (total * factor * weight).to(out_row.dtype.element_ty), mask=keep)


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
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    if TILES == 1:
        keep = lanes < n_cols
        total = sum_of(x_row, residual_row, lanes, keep)
        factor = 1.0 / tl.sqrt(tl.sum(total * total, axis=0) / n_cols + eps)
        store_both(out_row, total_row, weight_ptr, total, factor, lanes, keep)
    else:
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for i in range(TILES):
            cols = i * TILE + lanes
            keep = i * TILE + lanes < n_cols
            total = sum_of(x_row, residual_row, cols, keep)
            squares += total * total
        factor = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)
        # From the end to the start: the tiles that were read last are still in the cache.
        for i in range(TILES):
            cols = (TILES - 1 - i) * TILE + lanes
            keep = i * TILE + lanes < n_cols
            total = sum_of(x_row, residual_row, cols, keep)
            store_both(out_row, total_row, weight_ptr, total, factor, cols, keep)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given;
    neither may share memory with an input, because the autotuner runs the kernel several times. After Zhang
    and Sennrich, arXiv:1910.07467.
    """
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    strides = [tensor.stride(0) for tensor in (x, residual, out, total)]
    add_rms_norm_kernel[(n_rows,)](x, residual, weight, out, total, n_cols, *strides, 1e-5)
    return out, total
