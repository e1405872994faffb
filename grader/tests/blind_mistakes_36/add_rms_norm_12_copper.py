# gpu-programming/triton-kernels/add_rms_norm.py | contract | README: without out= or total= the function returns a new CONTIGUOUS tensor. The helper fresh allocates with torch.empty_strided(like.shape, like.stride(), ...), so the results copy the row stride of x and residual: not contiguous where the rows of x or residual lie further apart than n_cols (padded inputs) and no result is given. It should be torch.empty(like.shape, ...). The numbers are right everywhere, and everything is right where out and total are given or the inputs are contiguous.
"""Residual addition and RMSNorm: one path for rows that fit one tile, and another one for longer rows."""

import torch
import triton
import triton.language as tl

LIMIT = 16384


def _configs():
    """Each width from 1024 to LIMIT, with 32, 16 and 8 numbers for each thread, as far as 32 warps allow."""
    found = []
    tile = 1024
    while tile <= LIMIT:
        for per_thread in (32, 16, 8):
            warps = tile // (32 * per_thread)
            if warps <= 32:
                found.append(triton.Config({"TILE": tile}, num_warps=warps))
        tile *= 2
    return found


CONFIGS = _configs()


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), LIMIT)
    return [config for config in configs if config.kwargs["TILE"] == size]


@triton.jit
def inverse_rms(sum_of_squares, n_cols, eps):
    return tl.rsqrt(sum_of_squares / n_cols + eps)


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
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    residual_ptr += row * stride_residual
    out_ptr += row * stride_out
    total_ptr += row * stride_total
    cols = tl.arange(0, TILE)

    if TILES == 1:
        mask = cols < n_cols
        weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        total = x + tl.load(residual_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        r = inverse_rms(tl.sum(total * total, axis=0), n_cols, eps)
        tl.store(total_ptr + cols, total.to(total_ptr.dtype.element_ty), mask=mask)
        tl.store(out_ptr + cols, (total * r * weight).to(out_ptr.dtype.element_ty), mask=mask)
    else:
        parts = tl.zeros((TILE,), dtype=tl.float32)
        for i in range(TILES):
            at = i * TILE + cols
            x = tl.load(x_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
            total = x + tl.load(residual_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
            parts += total * total
        r = inverse_rms(tl.sum(parts, axis=0), n_cols, eps)
        for j in range(TILES):
            # From the end of the row: its last tile was read last, and is still in the cache.
            at = (TILES - 1 - j) * TILE + cols
            weight = tl.load(weight_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
            x = tl.load(x_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
            total = x + tl.load(residual_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
            tl.store(total_ptr + at, total.to(total_ptr.dtype.element_ty), mask=at < n_cols)
            tl.store(out_ptr + at, (total * r * weight).to(out_ptr.dtype.element_ty), mask=at < n_cols)


def fresh(like):
    """A tensor for a result."""
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    if out is None:
        out = fresh(x)
    if total is None:
        total = fresh(residual)
    add_rms_norm_kernel[(x.shape[0],)](
        x, residual, weight, out, total, x.shape[1],
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
