# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | In `add_rms_norm_kernel`, `inverse = tl.rsqrt(length / n_cols + eps)` divides the Euclidean length of the row, which the helper `longer` has already put under the root, by n_cols; it should be `tl.rsqrt(length * length / n_cols + eps)`. `out` is off by a factor for each row in all cases (all sizes, layouts, dtypes); `total` is right.
"""Residual addition and RMS normalisation: two walks over a row, the first one measures its length."""

import torch
import triton
import triton.language as tl

EPS = 1e-5

# (columns of a tile, warps): 8, 16 or 32 numbers for each thread
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 4), (4096, 8), (8192, 8), (8192, 16), (16384, 16))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def added(x_row, residual_row, cols, n_cols):
    """x + residual in fp32, with the digits that the dtype of x keeps, and 0 past the end of the row."""
    inside = cols < n_cols
    x = tl.load(x_row + cols, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=inside, other=0.0).to(tl.float32)
    return (x + residual).to(x_row.dtype.element_ty).to(tl.float32)


@triton.jit
def longer(length, values):
    """Euclidean length of a vector with `values` appended, from its length without them."""
    return tl.sqrt(length * length + tl.sum(values * values, axis=0))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,
    eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Program i owns row i: total = x + residual, and out = total over its root mean square, times weight."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    lanes = tl.arange(0, TILE)

    length = 0.0
    for tile in range(TILES):
        length = longer(length, added(x_row, residual_row, tile * TILE + lanes, n_cols))
    inverse = tl.rsqrt(length / n_cols + eps)

    for tile in range(TILES):
        cols = tile * TILE + lanes
        inside = cols < n_cols
        total = added(x_row, residual_row, cols, n_cols)
        weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(total_row + cols, total.to(total_ptr.dtype.element_ty), mask=inside)
        tl.store(out_row + cols, (total * inverse * weight).to(out_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """out and total, in this order: the normalised rows of x + residual, and x + residual itself.

    x and residual are (n_rows, n_cols) with contiguous columns and any row stride; weight is (n_cols,).
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if x.numel() > 0:
        add_rms_norm_kernel[(n_rows,)](
            x, residual, weight, out, total, n_cols,
            x.stride(0), residual.stride(0), out.stride(0), total.stride(0), EPS,
        )  # fmt: skip
    return out, total
