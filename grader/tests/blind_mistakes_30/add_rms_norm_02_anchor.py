# gpu-programming/triton-kernels/add_rms_norm.py | error | In add_rms_norm_kernel the tile of sums is made with tl.zeros((TILE,), dtype=x_ptr.dtype.element_ty), and the loop adds fp32 squares to it: in fp16 and bf16 the loop-carried variable changes its type from 16 bits to fp32, and Triton's compiler refuses the loop. It shows in every compilation for fp16 or bf16; fp32 compiles, and the interpreter computes right values. It should be dtype=tl.float32.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

EPS = 1e-5


def _configs():
    # from 8 to 32 numbers for each thread
    found = []
    for tile in (1024, 2048, 4096, 8192, 16384):
        for each in (8, 16, 32):
            warps = tile // (32 * each)
            if 4 <= warps <= 32:
                found.append(triton.Config({"TILE": tile}, num_warps=warps))
    return found


CONFIGS = _configs()


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr,
    weight_ptr,
    out_ptr, total_ptr,
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,
    eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual

    sums = tl.zeros((TILE,), dtype=x_ptr.dtype.element_ty)
    for tile in range(TILES):
        at = tile * TILE + cols
        both = tl.load(x_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        both += tl.load(residual_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        sums += both * both
    scale = 1.0 / tl.sqrt(tl.sum(sums, axis=0) / n_cols + eps)

    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    for tile in range(TILES):
        at = tile * TILE + cols
        both = tl.load(x_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        both += tl.load(residual_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
        tl.store(total_row + at, both, mask=at < n_cols)
        tl.store(out_row + at, both * scale * weight, mask=at < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    total = torch.empty_like(x, memory_format=torch.contiguous_format) if total is None else total
    strides = [tensor.stride(0) for tensor in (x, residual, out, total)]
    add_rms_norm_kernel[(x.shape[0],)](x, residual, weight, out, total, x.shape[1], *strides, EPS)
    return out, total
