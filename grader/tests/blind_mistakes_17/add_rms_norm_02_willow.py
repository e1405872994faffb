# gpu-programming/triton-kernels/add_rms_norm.py | corner | PACKED is decided from x alone (add_rms_norm: x.stride(0) == n_cols), and then the kernel uses n_cols as the row stride of residual, out and total too. If x is dense and one of these has padded rows, its rows are read or written at wrong places; the test has to cover all four tensors (or each use its own stride).
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

EPS = 1e-5
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in (
        (1024, 4), (2048, 4), (2048, 8), (4096, 8), (4096, 16), (8192, 8), (8192, 16), (16384, 16),
    )
]  # fmt: skip


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,
    eps,
    PACKED: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Program i owns row i. PACKED: rows follow each other without a gap, and one offset is enough."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, TILE)
    if PACKED:
        begin = row * n_cols
        x_row, residual_row = x_ptr + begin, residual_ptr + begin
        out_row, total_row = out_ptr + begin, total_ptr + begin
    else:
        x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
        out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total

    acc = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(TILES):
        cols = tile * TILE + lanes
        inside = cols < n_cols
        a = tl.load(x_row + cols, mask=inside, other=0.0)
        b = tl.load(residual_row + cols, mask=inside, other=0.0)
        s = (a.to(tl.float32) + b.to(tl.float32)).to(a.dtype).to(tl.float32)
        acc += s * s
    factor = 1.0 / tl.sqrt(tl.sum(acc, axis=0) / n_cols + eps)

    for tile in range(TILES):
        cols = tile * TILE + lanes
        inside = cols < n_cols
        a = tl.load(x_row + cols, mask=inside, other=0.0)
        b = tl.load(residual_row + cols, mask=inside, other=0.0)
        w = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        rounded = (a.to(tl.float32) + b.to(tl.float32)).to(a.dtype)
        normed = rounded.to(tl.float32) * factor * w
        tl.store(total_row + cols, rounded, mask=inside)
        tl.store(out_row + cols, normed.to(out_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    packed = x.stride(0) == n_cols
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total,
        n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0),
        EPS,
        PACKED=packed,
    )  # fmt: skip
    return out, total
