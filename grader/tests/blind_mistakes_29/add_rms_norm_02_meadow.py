# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | add_rms_norm: the kernel's parameters are total_ptr, out_ptr and stride_total, stride_out in this order, but the launch passes out, total and out.stride(0), total.stride(0); so the sum is stored in out and the norm in total, in every case; the launch should pass total before out, and their strides likewise
import torch
import triton
import triton.language as tl

EPS = 1e-5
WIDTHS = ((1024, 4), (2048, 4), (4096, 8), (8192, 8), (16384, 16))
CONFIGS = [triton.Config({"TILE": tile}, num_warps=warps) for tile, warps in WIDTHS]


def fitting(configs, named_args, **kwargs):
    """A whole row in a tile where one is wide enough, else the widest; also half of that."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if config.kwargs["TILE"] in (size, size // 2)]


@triton.jit
def load_total(x_row, residual_row, cols, n_cols):
    there = cols < n_cols
    a = tl.load(x_row + cols, mask=there, other=0.0)
    b = tl.load(residual_row + cols, mask=there, other=0.0)
    return (a.to(tl.float32) + b.to(tl.float32)).to(a.dtype)


@triton.jit
def finish(total, rstd, weight_ptr, total_row, out_row, cols, n_cols):
    there = cols < n_cols
    weight = tl.load(weight_ptr + cols, mask=there, other=0.0).to(tl.float32)
    y = total.to(tl.float32) * rstd * weight
    tl.store(total_row + cols, total, mask=there)
    tl.store(out_row + cols, y.to(total.dtype), mask=there)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, total_ptr, out_ptr,
    n_cols, eps,
    stride_x, stride_residual, stride_total, stride_out,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Row i is program i's. A row of one tile stays in registers, a longer one is added up twice."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    total_row = total_ptr + row * stride_total
    out_row = out_ptr + row * stride_out
    lanes = tl.arange(0, TILE)
    if TILES == 1:
        total = load_total(x_row, residual_row, lanes, n_cols)
        wide = total.to(tl.float32)
        rstd = tl.rsqrt(tl.sum(wide * wide, axis=0) / n_cols + eps)
        finish(total, rstd, weight_ptr, total_row, out_row, lanes, n_cols)
    else:
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for tile in range(TILES):
            wide = load_total(x_row, residual_row, tile * TILE + lanes, n_cols).to(tl.float32)
            squares += wide * wide
        rstd = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)
        for tile in range(TILES):
            cols = tile * TILE + lanes
            total = load_total(x_row, residual_row, cols, n_cols)
            finish(total, rstd, weight_ptr, total_row, out_row, cols, n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """The norm of x + residual, and x + residual itself."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total,
        n_cols, EPS,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0),
    )  # fmt: skip
    return out, total
