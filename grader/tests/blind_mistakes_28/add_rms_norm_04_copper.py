# gpu-programming/triton-kernels/add_rms_norm.py | error | The helper `put` converts with `values.to(row_ptr.dtype)`: the dtype of a pointer is a pointer type, to which fp32 cannot be cast, so add_rms_norm_kernel does not compile, in any case. It should be `row_ptr.dtype.element_ty`.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl


def _tile(columns, *warps):
    return [triton.Config({"TILE": columns}, num_warps=count) for count in warps]


CONFIGS = [*_tile(1024, 2, 4), *_tile(2048, 4), *_tile(4096, 4, 8), *_tile(8192, 8, 16), *_tile(16384, 16, 32)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def get(row_ptr, cols, n_cols):
    """Columns of a row in fp32, 0 past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.jit
def put(row_ptr, cols, n_cols, values):
    """Store columns of a row, rounded to its dtype."""
    tl.store(row_ptr + cols, values.to(row_ptr.dtype), mask=cols < n_cols)


@triton.jit
def inverse_root(squares, n_cols, eps):
    return 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i.

    A row of one tile stays in registers; a longer one is read twice.
    """
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    if TILES == 1:
        whole = get(x_row, cols, n_cols) + get(residual_row, cols, n_cols)
        r = inverse_root(whole * whole, n_cols, eps)
        put(total_row, cols, n_cols, whole)
        put(out_row, cols, n_cols, whole * r * get(weight_ptr, cols, n_cols))
    else:
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for tile in range(TILES):
            here = tile * TILE + cols
            part = get(x_row, here, n_cols) + get(residual_row, here, n_cols)
            squares += part * part
        r = inverse_root(squares, n_cols, eps)
        for tile in range(TILES):
            here = tile * TILE + cols
            part = get(x_row, here, n_cols) + get(residual_row, here, n_cols)
            put(total_row, here, n_cols, part)
            put(out_row, here, n_cols, part * r * get(weight_ptr, here, n_cols))


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    out = torch.empty_like(x) if out is None else out
    total = torch.empty_like(x) if total is None else total
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        stride_x=x.stride(0), stride_residual=residual.stride(0),
        stride_out=out.stride(0), stride_total=total.stride(0), eps=1e-5,
    )  # fmt: skip
    return out, total
