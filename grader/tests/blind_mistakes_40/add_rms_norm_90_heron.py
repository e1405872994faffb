# gpu-programming/triton-kernels/add_rms_norm.py | error | `@triton.heuristics({"TILES": tiles_of})` stands above `@triton.autotune(...)`: it is evaluated before the tuner has chosen a config, so `args["TILE"]` in `tiles_of` raises KeyError: 'TILE'. The two decorators should be exchanged. Raises in all cases.
"""Residual addition and RMSNorm, tile by tile: inputs stay in the cache for their second reading."""

import torch
import triton
import triton.language as tl

EPS = 1e-5


def _config(tile, num_warps):
    """One candidate: columns of a tile, a power of two, and warps; 8 to 32 numbers for each thread."""
    return triton.Config({"TILE": tile}, num_warps=num_warps)


CONFIGS = [
    _config(1024, 4),
    _config(2048, 4),
    _config(2048, 8),
    _config(4096, 8),
    _config(8192, 8),
    _config(8192, 16),
    _config(16384, 16),
    _config(16384, 32),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


def tiles_of(args):
    """How many tiles a row has."""
    return triton.cdiv(args["n_cols"], args["TILE"])


@triton.heuristics({"TILES": tiles_of})
@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    weight_ptr,  # (n_cols,) like x
    out_ptr, total_ptr,  # (n_rows, n_cols) like x
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,  # elements from one row to the next
    eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    dtype = out_ptr.dtype.element_ty
    lanes = tl.arange(0, TILE)

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(TILES):
        cols = tile * TILE + lanes
        inside = cols < n_cols
        x = tl.load(x_row + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        residual = tl.load(residual_row + cols, mask=inside, other=0.0, eviction_policy="evict_last")
        total = (x + residual.to(tl.float32)).to(dtype).to(tl.float32)
        squares += total * total
    r = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)

    for tile in range(TILES):
        cols = tile * TILE + lanes
        inside = cols < n_cols
        weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        residual = tl.load(residual_row + cols, mask=inside, other=0.0, eviction_policy="evict_first")
        rounded = (x + residual.to(tl.float32)).to(dtype)
        tl.store(total_row + cols, rounded, mask=inside)
        tl.store(out_row + cols, (rounded.to(tl.float32) * r * weight).to(dtype), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, columns contiguous, rows any number of elements apart;
    weight is (n_cols,). The results go to `out` and `total` where they are given.
    """
    n_rows, n_cols = x.shape
    out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype) if out is None else out
    total = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype) if total is None else total
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), EPS,
    )  # fmt: skip
    return out, total
