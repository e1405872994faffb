# gpu-programming/triton-kernels/add_rms_norm.py | corner | The launch passes total.stride(0) before out.stride(0), but the kernel has the stride of out first. Shown where out and total have rows different distances apart.
import torch
import triton
import triton.language as tl

EPS = tl.constexpr(1e-5)
CONFIGS = [triton.Config({"TILE": 128 * warps * each}, num_warps=warps) for warps, each in ((2, 4), (4, 4), (8, 4), (16, 4), (16, 8))]


def fitting(configs, named_args, **kwargs):
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def added(a_row, b_row, at, n_cols, dtype: tl.constexpr):
    """The sum of two rows at some columns, rounded to dtype."""
    a = tl.load(a_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
    return (a + tl.load(b_row + at, mask=at < n_cols, other=0.0).to(tl.float32)).to(dtype)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    a_ptr, b_ptr, w_ptr, normed_ptr, total_ptr, n_cols, a_stride, b_stride, normed_stride, total_stride, TILE: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    a_row, b_row = a_ptr + row * a_stride, b_ptr + row * b_stride
    normed_row, total_row = normed_ptr + row * normed_stride, total_ptr + row * total_stride
    power = 0.0
    for first in range(0, n_cols, TILE):
        t = added(a_row, b_row, first + tl.arange(0, TILE), n_cols, total_ptr.dtype.element_ty).to(tl.float32)
        power += tl.sum(t * t, axis=0)
    root = tl.sqrt(power / n_cols + EPS)
    for first in range(0, n_cols, TILE):
        at = first + tl.arange(0, TILE)
        t = added(a_row, b_row, at, n_cols, total_ptr.dtype.element_ty)
        w = tl.load(w_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
        tl.store(total_row + at, t, mask=at < n_cols)
        tl.store(normed_row + at, (t.to(tl.float32) / root * w).to(normed_ptr.dtype.element_ty), mask=at < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None):
    if out is None:
        out = torch.empty_like(x)
    if total is None:
        total = torch.empty_like(x)
    add_rms_norm_kernel[(x.size(0),)](
        x, residual, weight, out, total, x.size(1), x.stride(0), residual.stride(0), total.stride(0), out.stride(0)
    )
    return out, total
