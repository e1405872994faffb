# gpu-programming/triton-kernels/add_rms_norm.py | error | `squares = 0` in `add_rms_norm_kernel` is an int32 before the loop `for tile in range(TILES)`, whose body makes it fp32 with `squares += tl.sum(...)`: Triton refuses to compile a loop-carried variable that changes its type; it should be `squares = 0.0`. Compile error in all cases on a GPU and for the generated code; the interpreter alone accepts it and gives right numbers.
"""Residual addition and RMS normalisation by programs that take one row after the other."""

import torch
import triton
import triton.language as tl

MOST_PROGRAMS = 8192

CONFIGS = [
    triton.Config({"TILE": 128 * each * 2**power}, num_warps=4 * 2**power, num_stages=1)
    for power in range(4)
    for each in (8, 16, 32)
    if 128 * each * 2**power <= 16384
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def sum_of(x_ptr, residual_ptr, x_start, residual_start, cols, n_cols):
    """A tile of x + residual, as the dtype of x has it, in fp32; 0 past the end of the row."""
    inside = cols < n_cols
    x = tl.load(x_ptr + x_start + cols, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + residual_start + cols, mask=inside, other=0.0).to(tl.float32)
    return (x + residual).to(x_ptr.dtype.element_ty).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_rows, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Program i owns the rows i, i + programs, ...; each of them has TILES tiles of TILE columns."""
    lanes = tl.arange(0, TILE)
    for i in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        row = i.to(tl.int64)
        x_start, residual_start = row * stride_x, row * stride_residual
        out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total

        squares = 0
        for tile in range(TILES):
            total = sum_of(x_ptr, residual_ptr, x_start, residual_start, tile * TILE + lanes, n_cols)
            squares += tl.sum(total * total, axis=0)
        rstd = 1.0 / tl.sqrt(squares / n_cols + eps)

        for tile in range(TILES):
            cols = tile * TILE + lanes
            inside = cols < n_cols
            total = sum_of(x_ptr, residual_ptr, x_start, residual_start, cols, n_cols)
            weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
            tl.store(total_row + cols, total.to(total_ptr.dtype.element_ty), mask=inside)
            tl.store(out_row + cols, (total * rstd * weight).to(out_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    add_rms_norm_kernel[(min(n_rows, MOST_PROGRAMS),)](
        x, residual, weight, out, total, n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
