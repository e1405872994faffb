# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | in add_rms_norm_kernel, first loop, `squares += x * x + r * r` adds the squares of both terms and leaves out 2 * x * r; it should be the square of the sum, (x + r) * (x + r); total is right, every row of out is off by a factor of its own, by some percent for short rows and less for long ones (x and residual of random signs), so that only long rows in fp16 or bf16, or rows where one term is much larger, come near the tolerance
"""The residual stream and its RMSNorm, tile by tile, in two passes over a row."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": 16384}, num_warps=16),
    triton.Config({"TILE": 8192}, num_warps=16),
    triton.Config({"TILE": 8192}, num_warps=8),
    triton.Config({"TILE": 4096}, num_warps=8),
    triton.Config({"TILE": 4096}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=4),
    triton.Config({"TILE": 1024}, num_warps=4),
    triton.Config({"TILE": 1024}, num_warps=2),
]


def fitting(configs, named_args, **kwargs):
    """Tiles as wide as the row or half as wide, within what the list has."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """out = total / sqrt(mean(total * total) + eps) * weight with total = x + residual; one program a row."""
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for i in range(TILES):
        at = i * TILE + cols
        x = tl.load(x_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        r = tl.load(residual_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        squares += x * x + r * r
    inverse = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)

    for i in range(TILES):
        at = i * TILE + cols
        mask = at < n_cols
        x = tl.load(x_row + at, mask=mask, other=0.0).to(tl.float32)
        r = tl.load(residual_row + at, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + at, mask=mask, other=0.0).to(tl.float32)
        total = x + r
        tl.store(total_row + at, total.to(total_ptr.dtype.element_ty), mask=mask)
        tl.store(out_row + at, (total * inverse * w).to(out_ptr.dtype.element_ty), mask=mask)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, divided by the root mean square of its rows and scaled: out and total."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if total is None:
        total = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), eps=1e-5,
    )  # fmt: skip
    return out, total
