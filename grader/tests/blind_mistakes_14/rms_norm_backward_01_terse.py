# labs/lab4_production_slice/rms_norm_backward.py | wrong everywhere | The last line of dx_kernel, `inv * (g - n * (inv * dot))`, subtracts n times the sum of g * n instead of its mean: the division of dot by N_COLS is missing, so dx is wrong everywhere (dweight is right).
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
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    x_ptr += row * stride_x
    dx_ptr += row * stride_dx
    lane = tl.arange(0, BLOCK)

    xx = tl.zeros((BLOCK,), tl.float32)
    gx = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, N_COLS, BLOCK):
        x = load(x_ptr, k + lane, N_COLS)
        g = load(dy_ptr, k + lane, N_COLS) * load(weight_ptr, k + lane, N_COLS)
        xx += x * x
        gx += g * x
    inv = tl.rsqrt(tl.sum(xx, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    dot = tl.sum(gx, axis=0)
    tl.store(rstd_ptr + row, inv)

    for k in range(0, N_COLS, BLOCK):
        g = load(dy_ptr, k + lane, N_COLS) * load(weight_ptr, k + lane, N_COLS)
        n = load(x_ptr, k + lane, N_COLS) * inv
        store(dx_ptr, k + lane, N_COLS, inv * (g - n * (inv * dot)))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    group, groups = tl.program_id(1), tl.num_programs(1)
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    acc = tl.zeros((ROWS, COLS), tl.float32)
    for r in range(group * ROWS, n_rows, groups * ROWS):
        rows = (r + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        m = (rows < n_rows) & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + rows * stride_dy + cols[None, :], mask=m, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols[None, :], mask=m, other=0.0).to(tl.float32)
        acc += dy * x * tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(acc, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), sums.shape[0])](
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
        dx, dweight = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
