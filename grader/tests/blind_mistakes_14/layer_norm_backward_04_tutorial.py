# labs/lab4_production_slice/layer_norm_backward.py | corner | In the second loop of dx_kernel the line `c1 = tl.sum(wdy * diff, axis=0)` overwrites the sum of the earlier blocks; it should be `c1 += ...`, so dx is wrong for rows of more than one block (more than 16384 columns).
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    DY,  # pointer to the output gradient
    X,  # pointer to the input
    W,  # pointer to the weights
    DX,  # pointer to the input gradient
    Mean,  # pointer to the mean
    Rstd,  # pointer to the 1/std
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # Map the program id to the elements of X, DX, and DY it should compute.
    row = tl.program_id(0).to(tl.int64)
    X += row * stride_x
    DY += row * stride_dy
    DX += row * stride_dx

    # Compute mean
    _mean = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        a = tl.load(X + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        _mean += a
    mean = tl.sum(_mean, axis=0) / N_COLS

    # Compute variance and the two constants of the gradient
    var = 0.0
    c1 = 0.0
    c2 = 0.0
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        mask = cols < N_COLS
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(DY + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(W + cols, mask=mask, other=0.0).to(tl.float32)
        diff = tl.where(mask, x - mean, 0.0)
        wdy = w * dy
        var += tl.sum(diff * diff, axis=0)
        c1 = tl.sum(wdy * diff, axis=0)
        c2 += tl.sum(wdy, axis=0)
    rstd = tl.rsqrt(var / N_COLS + tl.cast(eps, tl.float32))
    c1 = c1 * rstd / N_COLS
    c2 = c2 / N_COLS

    # Save mean / rstd for the second kernel
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)

    # Compute dx
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        mask = cols < N_COLS
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(DY + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(W + cols, mask=mask, other=0.0).to(tl.float32)
        xhat = (x - mean) * rstd
        wdy = w * dy
        dx = (wdy - (xhat * c1 + c2)) * rstd
        tl.store(DX + cols, dx.to(DX.dtype.element_ty), mask=mask)


@triton.jit
def weight_gradient_kernel(DY, X, Mean, Rstd, Sums, n_rows, n_cols, stride_dy, stride_x):
    group = tl.program_id(1)
    groups = tl.num_programs(1)
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    dw = tl.zeros([ROWS, COLS], dtype=tl.float32)
    db = tl.zeros([ROWS, COLS], dtype=tl.float32)
    # Iterate through the rows of the group to sum the partial results.
    for i in range(group * ROWS, n_rows, groups * ROWS):
        rows = i + tl.arange(0, ROWS).to(tl.int64)
        row_mask = rows < n_rows
        mask = row_mask[:, None] & (cols[None, :] < n_cols)
        dy = tl.load(DY + rows[:, None] * stride_dy + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        x = tl.load(X + rows[:, None] * stride_x + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        mean = tl.load(Mean + rows, mask=row_mask, other=0.0)
        rstd = tl.load(Rstd + rows, mask=row_mask, other=0.0)
        xhat = (x - mean[:, None]) * rstd[:, None]
        dw += dy * xhat
        db += dy
    # Write the sums of the group
    store(Sums + group * n_cols, cols, n_cols, tl.sum(dw, axis=0))
    store(Sums + (groups + group) * n_cols, cols, n_cols, tl.sum(db, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    M, N = x.shape
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    sums = x.new_empty((2, min(GROUPS, triton.cdiv(M, ROWS)), N), dtype=torch.float32)
    # enqueue the kernel of dx
    on(dx_kernel, x)[(M,)](
        dy, x, weight, dx, mean, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps, N_COLS=N, BLOCK=block_of(N)
    )
    # enqueue the kernel of the weights, and the last sums
    grid = (triton.cdiv(N, COLS), sums.shape[1])
    on(weight_gradient_kernel, x)[grid](dy, x, mean, rstd, sums, M, N, dy.stride(0), x.stride(0))
    column_sums(sums[0], dweight)
    column_sums(sums[1], dbias)
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """layer_norm_backward as an operator that torch.compile can look into."""
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        """Return y for x."""
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
