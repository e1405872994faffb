# gpu-programming/triton-kernels/add_rms_norm.py | corner | In the helper inverse_rms, eps is added to the sum of squares before the division by n_cols, (sum + eps) / n_cols, so its effect is n_cols times too small. out is wrong in rows of small values (a few thousandths), where eps decides, in all dtypes; in fp32 it can also show in short rows of ordinary values with a small norm; total is right. It should be sum / n_cols + eps.
"""total = x + residual and out = RMSNorm(total) * weight; a row that fits one tile is read once."""

import torch
import triton
import triton.language as tl

WARPS = {1024: (4,), 2048: (4, 8), 4096: (8, 16), 8192: (8, 16), 16384: (16, 32)}
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps) for tile, counts in WARPS.items() for warps in counts
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def added(x_row, residual_row, cols, n_cols):
    """One tile of x + residual in fp32, 0 past the end of the row."""
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0)
    residual = tl.load(residual_row + cols, mask=cols < n_cols, other=0.0)
    return x.to(tl.float32) + residual.to(tl.float32)


@triton.jit
def inverse_rms(squares, n_cols, eps):
    return tl.rsqrt((tl.sum(squares, axis=0) + eps) / n_cols)


@triton.jit
def finish(total, r, weight_ptr, out_row, total_row, cols, n_cols):
    """Store one tile of both results."""
    weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(total_row + cols, total, mask=cols < n_cols)
    tl.store(out_row + cols, total * r * weight, mask=cols < n_cols)


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
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total
    cols = tl.arange(0, TILE)

    if TILES == 1:
        whole = added(x_row, residual_row, cols, n_cols)
        r = inverse_rms(whole * whole, n_cols, eps)
        finish(whole, r, weight_ptr, out_row, total_row, cols, n_cols)
    else:
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for i in range(TILES):
            part = added(x_row, residual_row, i * TILE + cols, n_cols)
            squares += part * part
        r = inverse_rms(squares, n_cols, eps)
        for i in range(TILES):
            part = added(x_row, residual_row, i * TILE + cols, n_cols)
            finish(part, r, weight_ptr, out_row, total_row, i * TILE + cols, n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (out, total); new contiguous tensors where none are given."""
    rows, n_cols = x.shape
    if out is None:
        out = torch.empty((rows, n_cols), dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty((rows, n_cols), dtype=x.dtype, device=x.device)
    add_rms_norm_kernel[(rows,)](
        x,
        residual,
        weight,
        out,
        total,
        n_cols=n_cols,
        stride_x=x.stride(0),
        stride_residual=residual.stride(0),
        stride_out=out.stride(0),
        stride_total=total.stride(0),
        eps=1e-5,
    )
    return out, total
