# gpu-programming/triton-kernels/add_rms_norm.py | error | In add_rms_norm the grid function returns `(min(most, triton.cdiv(n_rows, meta["SHARE"])))`, an int in parentheses; it should be a tuple, with a comma before the last parenthesis. The launch raises TypeError (an int has no len) in all cases.
"""Residual addition and RMSNorm of the sum; persistent programs with a stride over the rows, autotuned."""

import torch
import triton
import triton.language as tl

PROGRAMS = 8  # for each multiprocessor
CONFIGS = [
    triton.Config({"TILE": tile, "SHARE": share}, num_warps=warps)
    for tile, share, warps in (
        (1024, 4, 4),  # columns of a tile, rows of a program at least, warps
        (2048, 2, 4),
        (4096, 2, 8),
        (8192, 1, 8),
        (16384, 1, 16),
    )
]


def fitting(configs, named_args, **kwargs):
    """Tiles that are as wide as the row or half as wide, within what there is."""
    width = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if width // 2 <= config.kwargs["TILE"] <= width]


@triton.jit
def load_sum(x_row, residual_row, cols, n_cols):
    """x + residual as it is stored; 0 past the end."""
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0)
    residual = tl.load(residual_row + cols, mask=cols < n_cols, other=0.0)
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    total_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_residual,
    stride_out,
    stride_total,
    eps,
    TILE: tl.constexpr,
    TILES: tl.constexpr,
    SHARE: tl.constexpr,
):
    """Program p owns the rows p, p + programs, p + 2 * programs and so on, SHARE of them or more."""
    lanes = tl.arange(0, TILE)
    for number in tl.range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        row = tl.cast(number, tl.int64)
        x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
        out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for i in range(TILES):
            total = load_sum(x_row, residual_row, i * TILE + lanes, n_cols).to(tl.float32)
            squares += total * total
        norm = tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)
        for i in range(TILES):
            cols = i * TILE + lanes
            inside = cols < n_cols
            total = load_sum(x_row, residual_row, cols, n_cols)
            weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
            y = total.to(tl.float32) / norm * weight
            tl.store(total_row + cols, total, mask=inside)
            tl.store(out_row + cols, y.to(out_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """out and total for x and residual, (n_rows, n_cols) of one dtype, and weight, (n_cols,).

    total is x + residual, and out is total / sqrt(mean(total * total) + 1e-5) * weight, row by row.
    """
    n_rows, n_cols = x.shape
    out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype) if out is None else out
    total = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype) if total is None else total
    most = 16
    if x.is_cuda:
        most = PROGRAMS * torch.cuda.get_device_properties(x.device).multi_processor_count

    def programs(meta):
        return (min(most, triton.cdiv(n_rows, meta["SHARE"])))

    add_rms_norm_kernel[programs](
        x, residual, weight, out, total, n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
