# gpu-programming/triton-kernels/add_rms_norm.py | error | In `read`, the branch WHOLE has `tl.load(row_ptr + cols, other=0.0)`: `other` without `mask` is refused ("`other` cannot be provided without `mask`"); it should be `tl.load(row_ptr + cols)`. The kernel does not compile where n_cols is a multiple of the TILE of a config that is tried: n_cols = 4096 (also the case of the generated code), 24576 (TILE 8192), 131072, and the timed shapes; other widths are right.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

EPS = 1e-5

# 8 to 32 numbers for each thread: one to four loads of 16 bytes in 16 bits.
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=max(4, tile // 32 // numbers))
    for tile, numbers in (
        (1024, 8), (2048, 16), (2048, 8), (4096, 16), (4096, 8), (8192, 32), (8192, 16), (16384, 32),
    )
]  # fmt: skip


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def read(row_ptr, cols, n_cols, WHOLE: tl.constexpr):
    """One tile of a row in fp32, 0 past its end; rows of WHOLE tiles have no end to look at."""
    if WHOLE:
        values = tl.load(row_ptr + cols, other=0.0)
    else:
        values = tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0)
    return values.to(tl.float32)


@triton.jit
def write(row_ptr, cols, values, n_cols, WHOLE: tl.constexpr):
    """values, rounded once, into one tile of a row."""
    rounded = values.to(row_ptr.dtype.element_ty)
    if WHOLE:
        tl.store(row_ptr + cols, rounded)
    else:
        tl.store(row_ptr + cols, rounded, mask=cols < n_cols)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({
    "TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"]),
    "WHOLE": lambda args: args["n_cols"] % args["TILE"] == 0,
})  # fmt: skip
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    weight_ptr,  # (n_cols,) like x
    out_ptr, total_ptr,  # (n_rows, n_cols) like x
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,  # elements from one row to the next
    eps,
    TILE: tl.constexpr, TILES: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i.

    A row has TILES tiles of TILE columns. The norm is that of the sum in fp32.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    lanes = tl.arange(0, TILE)

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(TILES):
        cols = tile * TILE + lanes
        total = read(x_row, cols, n_cols, WHOLE) + read(residual_row, cols, n_cols, WHOLE)
        squares += total * total
    scale = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)

    for tile in range(TILES):
        cols = tile * TILE + lanes
        total = read(x_row, cols, n_cols, WHOLE) + read(residual_row, cols, n_cols, WHOLE)
        write(total_row, cols, total, n_cols, WHOLE)
        write(out_row, cols, total * scale * read(weight_ptr, cols, n_cols, WHOLE), n_cols, WHOLE)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given.
    """
    n_rows, n_cols = x.shape
    out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if out is None else out
    total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if total is None else total
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total,
        n_cols, x.stride(0), residual.stride(0), out.stride(0), total.stride(0), EPS,
    )  # fmt: skip
    return out, total
