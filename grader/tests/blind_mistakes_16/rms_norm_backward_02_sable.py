# labs/lab4_production_slice/rms_norm_backward.py | corner | weight_gradient_kernel: `rows` is int32 when it is multiplied by stride_x and stride_dy, so the offset wraps around where a row begins beyond 2^31 elements; it should be `.to(tl.int64)` before. Only dweight of very large or widely spaced matrices is wrong (or read out of bounds).
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, rstd_ptr,
    stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx of one row, and its rstd."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    x_ptr += row * stride_x
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)
    xx = tl.zeros((BLOCK,), dtype=tl.float32)
    gx = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_ptr, start + lanes, N_COLS)
        g = load(dy_ptr, start + lanes, N_COLS) * load(weight_ptr, start + lanes, N_COLS)
        xx += x * x
        gx += g * x
    rstd = tl.rsqrt(tl.sum(xx, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    mean_gn = tl.sum(gx, axis=0) / N_COLS * rstd
    for start in range(0, N_COLS, BLOCK):
        n = load(x_ptr, start + lanes, N_COLS) * rstd
        g = load(dy_ptr, start + lanes, N_COLS) * load(weight_ptr, start + lanes, N_COLS)
        store(dx_ptr, start + lanes, N_COLS, (g - n * mean_gn) * rstd)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    col_mask = cols < n_cols
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = start + tl.arange(0, ROWS)
        row_mask = rows < n_rows
        tile_mask = row_mask[:, None] & col_mask[None, :]
        rstd = tl.load(rstd_ptr + rows, mask=row_mask, other=0.0)
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=tile_mask, other=0.0)
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=tile_mask, other=0.0)
        dweight += dy.to(tl.float32) * x.to(tl.float32) * rstd[:, None]
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order; they go to `dx` and `dweight` where given."""
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, 16))
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd,
        dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, 128), groups)](
        dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
    )
    column_sums(sums, dweight)
    return dx, dweight


@triton_op("course::rms_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """rms_norm_backward as an operator that torch.compile can look into."""
    return rms_norm_backward(dy, x, weight, eps=eps)


class RMSNorm(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        """Return y for x."""
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx and dweight for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        return (*backward_op(dy.contiguous(), x, weight, ctx.eps), None)


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
