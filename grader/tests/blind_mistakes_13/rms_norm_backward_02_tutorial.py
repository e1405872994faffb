# labs/lab4_production_slice/rms_norm_backward.py | wrong everywhere | In weight_gradient_kernel `dw += dy * x` takes the row as it is; it should be the normalised row, `dw += dy * x * rstd` with rstd of each row from `Rstd`, which is never loaded.
"""Backward pass of RMSNorm in two kernels."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, on
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    DY,  # gradient of the output
    X,  # input
    W,  # weight
    DX,  # gradient of the input
    Rstd,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Each program computes one row of DX."""
    row = tl.program_id(0).to(tl.int64)
    DY += row * stride_dy
    X += row * stride_x
    DX += row * stride_dx
    # sums of the row
    _sq = tl.zeros([BLOCK], dtype=tl.float32)
    _c = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        mask = cols < N_COLS
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(DY + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(W + cols, mask=mask, other=0.0).to(tl.float32)
        _sq += x * x
        _c += dy * w * x
    rstd = tl.rsqrt(tl.sum(_sq, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(Rstd + row, rstd)
    c = tl.sum(_c, axis=0) * rstd / N_COLS
    # compute and write dx
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        mask = cols < N_COLS
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(DY + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(W + cols, mask=mask, other=0.0).to(tl.float32)
        xhat = x * rstd
        dx = (dy * w - xhat * c) * rstd
        tl.store(DX + cols, dx.to(DX.dtype.element_ty), mask=mask)


@triton.jit
def weight_gradient_kernel(DY, X, Rstd, Sums, M, N, stride_dy, stride_x):
    """Each program adds COLS columns of a group of rows."""
    group = tl.program_id(1)
    groups = tl.num_programs(1)
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    dw = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for i in range(group * ROWS, M, groups * ROWS):
        rows = i + tl.arange(0, ROWS)[:, None].to(tl.int64)
        mask = (rows < M) & (cols[None, :] < N)
        dy = tl.load(DY + rows * stride_dy + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        x = tl.load(X + rows * stride_x + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        dw += dy * x
    tl.store(Sums + group * N + cols, tl.sum(dw, axis=0), mask=cols < N)


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """dx and dweight."""
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    M, N = x.shape
    rstd = torch.empty((M,), dtype=torch.float32, device=x.device)
    num_groups = min(GROUPS, triton.cdiv(M, ROWS))
    sums = torch.empty((num_groups, N), dtype=torch.float32, device=x.device)
    on(dx_kernel, x)[(M,)](
        dy, x, weight, dx, rstd,
        dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=N, BLOCK=block_of(N),
    )  # fmt: skip
    grid = (triton.cdiv(N, COLS), num_groups)
    on(weight_gradient_kernel, x)[grid](dy, x, rstd, sums, M, N, dy.stride(0), x.stride(0))
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
        y = rms_norm_op(x, weight, eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx and dweight for dy, and None for eps."""
        x, w = ctx.saved_tensors
        dx, dw = backward_op(dy.contiguous(), x, w, ctx.eps)
        return dx, dw, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
