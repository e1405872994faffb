# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | In the second loop of add_rms_norm_kernel out is total * r * (1 + weight), the convention of some models that store weight - 1; the README asks for total * r * weight. total is right.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

# width of a tile: numbers of warps
WARPS = {1024: (2, 4), 2048: (4, 8), 4096: (4, 8), 8192: (8, 16), 16384: (16, 32)}
CONFIGS = [triton.Config({"TILE": width}, num_warps=warps) for width in WARPS for warps in WARPS[width]]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def add(x_row, residual_row, cols, n_cols):
    """The rounded sum of two rows at cols, as it is stored; 0 past the end."""
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0)
    residual = tl.load(residual_row + cols, mask=cols < n_cols, other=0.0)
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
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
    """total = x + residual, out = total normalised by its root mean square and scaled; program i owns row i.

    A row has TILES tiles of TILE columns. The norm is that of the rounded total, as it is stored.
    """
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual

    # First walk: the energy of the row, lane by lane.
    energy = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(TILES):
        total = add(x_row, residual_row, tile * TILE + cols, n_cols).to(tl.float32)
        energy += total * total
    r = tl.rsqrt(tl.sum(energy, axis=0) / n_cols + eps)

    # Second walk: both results.
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    for tile in range(TILES):
        here = tile * TILE + cols
        inside = here < n_cols
        total = add(x_row, residual_row, here, n_cols)
        tl.store(total_row + here, total, mask=inside)
        gain = 1.0 + tl.load(weight_ptr + here, mask=inside, other=0.0).to(tl.float32)
        out = total.to(tl.float32) * r * gain
        tl.store(out_row + here, out.to(out_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given;
    neither may share memory with an input, because the autotuner runs the kernel several times. After Zhang
    and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    total = torch.empty_like(x) if total is None else total
    n_rows, n_cols = x.shape
    tensors = (x, residual, weight, out, total)
    strides = [tensor.stride(0) for tensor in (x, residual, out, total)]
    add_rms_norm_kernel[(n_rows,)](*tensors, n_cols, *strides, 1e-5)
    return out, total
