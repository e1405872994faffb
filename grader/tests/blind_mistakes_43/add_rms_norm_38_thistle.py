# gpu-programming/triton-kernels/add_rms_norm.py | contract | `FEWEST, MOST = 4, 32` with `if FEWEST <= tile // (32 * warps) <= MOST` lets configs through that have 4 numbers for each thread, (TILE, warps) = (1024, 8), (2048, 16), (4096, 32): in bf16 and fp16 their loads have 8 bytes. The README wants loads of 16 bytes in every config, so FEWEST should be 8. All numbers are right; it shows in the generated code (4096 columns, bf16: (2048, 16) and (4096, 32)).
"""Residual addition and RMS normalisation in one kernel, with a reduction of its own, autotuned."""

import torch
import triton
import triton.language as tl

NARROWEST, WIDEST = 1024, 16384
TILES_TO_TRY = (1024, 2048, 4096, 8192, 16384)
WARPS_TO_TRY = (4, 8, 16, 32)
FEWEST, MOST = 4, 32  # numbers of a tile that one thread holds
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile in TILES_TO_TRY
    for warps in WARPS_TO_TRY
    if FEWEST <= tile // (32 * warps) <= MOST
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), NARROWEST), WIDEST)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def plus(a, b):
    """The combination of two partial sums."""
    return a + b


@triton.jit
def added(x_ptr, residual_ptr, cols, n_cols):
    """A tile of x + residual, rounded once to their dtype; 0 past the end."""
    inside = cols < n_cols
    x = tl.load(x_ptr + cols, mask=inside, other=0.0)
    residual = tl.load(residual_ptr + cols, mask=inside, other=0.0)
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)


@triton.jit
def mean_square(total, n_cols):
    """The mean of the squares of a row that is one tile."""
    wide = total.to(tl.float32)
    return tl.reduce(wide * wide, axis=0, combine_fn=plus) / n_cols


@triton.jit
def write(out_ptr, total_ptr, weight_ptr, total, scale, cols, n_cols):
    """A tile of both results."""
    inside = cols < n_cols
    weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(total_ptr + cols, total, mask=inside)
    result = total.to(tl.float32) * scale * weight
    tl.store(out_ptr + cols, result.to(out_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"WHOLE": lambda args: args["n_cols"] <= args["TILE"]})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    weight_ptr,  # (n_cols,) like x
    out_ptr, total_ptr,  # (n_rows, n_cols) like x
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,  # elements from one row to the next
    eps,
    TILE: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i.

    WHOLE: the row is one tile, and what was loaded for the sum of squares serves for the results, too.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    residual_ptr += row * stride_residual
    out_ptr += row * stride_out
    total_ptr += row * stride_total
    cols = tl.arange(0, TILE)
    if WHOLE:
        total = added(x_ptr, residual_ptr, cols, n_cols)
        scale = 1.0 / tl.sqrt(mean_square(total, n_cols) + eps)
        write(out_ptr, total_ptr, weight_ptr, total, scale, cols, n_cols)
    else:
        # Each lane adds its squares in fp32; the lanes meet only once.
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for start in range(0, n_cols, TILE):
            wide = added(x_ptr, residual_ptr, start + cols, n_cols).to(tl.float32)
            squares += wide * wide
        scale = 1.0 / tl.sqrt(tl.reduce(squares, axis=0, combine_fn=plus) / n_cols + eps)
        for start in range(0, n_cols, TILE):
            total = added(x_ptr, residual_ptr, start + cols, n_cols)
            write(out_ptr, total_ptr, weight_ptr, total, scale, start + cols, n_cols)


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
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0),
        1e-5,
    )  # fmt: skip
    return out, total
