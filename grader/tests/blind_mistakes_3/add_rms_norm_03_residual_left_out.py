# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | add_rms_norm_kernel, second loop: out is the unscaled x times r times weight, while r is the norm of x + residual: the residual is missing in what is normalised. It must be total * r * weight.
import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in ((1024, 4), (2048, 8), (4096, 8), (8192, 16), (16384, 16))
]


def fitting(configs, named_args, **kwargs):
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def add(x_row, residual_row, c, n_cols):
    x = tl.load(x_row + c, mask=c < n_cols, other=0.0)
    residual = tl.load(residual_row + c, mask=c < n_cols, other=0.0)
    return x.to(tl.float32), residual.to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_cols, stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    residual_ptr += row * stride_residual
    out_ptr += row * stride_out
    total_ptr += row * stride_total
    cols = tl.arange(0, TILE)
    ss = 0.0
    for i in range(TILES):
        x, residual = add(x_ptr, residual_ptr, i * TILE + cols, n_cols)
        h = x + residual
        ss += tl.sum(h * h, axis=0)
    r = tl.rsqrt(ss / n_cols + eps)
    for i in range(TILES):
        c = i * TILE + cols
        x, residual = add(x_ptr, residual_ptr, c, n_cols)
        h = x + residual
        w = tl.load(weight_ptr + c, mask=c < n_cols, other=0.0).to(tl.float32)
        tl.store(total_ptr + c, h.to(total_ptr.dtype.element_ty), mask=c < n_cols)
        tl.store(out_ptr + c, (x * r * w).to(out_ptr.dtype.element_ty), mask=c < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    if out is None:
        out = torch.empty_like(x)
    if total is None:
        total = torch.empty_like(x)
    rows, cols = x.shape
    add_rms_norm_kernel[(rows,)](
        x, residual, weight, out, total,
        cols, x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
