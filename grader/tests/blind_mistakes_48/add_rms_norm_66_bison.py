# gpu-programming/triton-kernels/add_rms_norm.py | right | Persistent programs, some for each multiprocessor (their count is part of the config), that walk over rows with a stride of `tl.num_programs`; the weight is loaded once per program where a row fits a tile (heuristic WHOLE), two passes by tiles otherwise; `tl.reduce` with an own sum.
"""Residual addition and RMS normalisation by persistent programs, each of which walks over many rows."""

import torch
import triton
import triton.language as tl


def _configs():
    """Tiles and warps, 8 to 32 numbers for each thread, and how many programs share a multiprocessor."""
    shapes = ((1024, 4), (2048, 4), (2048, 8), (4096, 4), (4096, 8), (8192, 8), (8192, 16), (16384, 16))
    return [
        triton.Config({"TILE": tile, "SHARE": max(1, 32 // warps)}, num_stages=1, num_warps=warps)
        for tile, warps in shapes
    ]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def pairwise(a, b):
    """The sum of two sums."""
    return a + b


@triton.jit
def rstd_of(squares, n_cols, eps):
    """1 / sqrt(mean + eps) from a tile of sums of squares."""
    return 1.0 / tl.sqrt(tl.reduce(squares, 0, pairwise) / n_cols + eps)


@triton.jit
def add(x_row, residual_row, cols, n_cols):
    """Some columns of x + residual as fp32, rounded like the tensor that they go to."""
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0)
    residual = tl.load(residual_row + cols, mask=cols < n_cols, other=0.0)
    total = x.to(tl.float32) + residual.to(tl.float32)
    return total.to(x_row.dtype.element_ty).to(tl.float32)


@triton.jit
def put(row, cols, values, n_cols):
    """Store some columns of a row, rounded to its dtype."""
    tl.store(row + cols, values.to(row.dtype.element_ty), mask=cols < n_cols)


@triton.autotune(configs=_configs(), key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"WHOLE": lambda args: args["n_cols"] <= args["TILE"]})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_rows, n_cols,
    stride_x, stride_residual, stride_out, stride_total,  # elements from one row to the next
    eps,
    TILE: tl.constexpr, SHARE: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight, for every n-th row."""
    lanes = tl.arange(0, TILE)
    # The weight of a whole row is loaded once for all rows of the program.
    whole_weight = tl.load(weight_ptr + lanes, mask=lanes < n_cols, other=0.0).to(tl.float32)

    for index in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        row = tl.cast(index, tl.int64)
        x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
        out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
        if WHOLE:
            total = add(x_row, residual_row, lanes, n_cols)
            rstd = rstd_of(total * total, n_cols, eps)
            put(total_row, lanes, total, n_cols)
            put(out_row, lanes, total * rstd * whole_weight, n_cols)
        else:
            squares = tl.zeros((TILE,), dtype=tl.float32)
            for start in range(0, n_cols, TILE):
                part = add(x_row, residual_row, start + lanes, n_cols)
                squares += part * part
            scale = rstd_of(squares, n_cols, eps)
            for start in range(0, n_cols, TILE):
                cols = start + lanes
                part = add(x_row, residual_row, cols, n_cols)
                weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
                put(total_row, cols, part, n_cols)
                put(out_row, cols, part * scale * weight, n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given;
    neither may share memory with an input, because the autotuner runs the kernel several times.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 4
    add_rms_norm_kernel[lambda meta: (min(n_rows, meta["SHARE"] * processors),)](
        x, residual, weight, out, total, n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
