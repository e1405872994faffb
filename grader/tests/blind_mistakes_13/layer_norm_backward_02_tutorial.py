# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | The grid of weight_gradient_kernel in layer_norm_backward is `(num_groups, triton.cdiv(n_cols, COLS))`, with the axes swapped: the kernel takes columns from axis 0 and groups from axis 1, so it should be `(triton.cdiv(n_cols, COLS), num_groups)`.
"""Backward pass of LayerNorm, in the manner of tutorial 05, but without locks."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
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
    Mean,
    Rstd,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Each program handles one row."""
    # Map the program id to the row of X, DX and DY it should compute.
    row = tl.program_id(0).to(tl.int64)
    X += row * stride_x
    DY += row * stride_dy
    DX += row * stride_dx
    # Mean
    _mean = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        a = tl.load(X + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        _mean += a
    mean = tl.sum(_mean, axis=0) / N_COLS
    # Variance and the two sums that the gradient needs
    _var = tl.zeros([BLOCK], dtype=tl.float32)
    _c1 = tl.zeros([BLOCK], dtype=tl.float32)
    _c2 = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        mask = cols < N_COLS
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(DY + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(W + cols, mask=mask, other=0.0).to(tl.float32)
        x = tl.where(mask, x - mean, 0.0)
        wdy = w * dy
        _var += x * x
        _c1 += wdy * x
        _c2 += wdy
    rstd = tl.rsqrt(tl.sum(_var, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    c1 = tl.sum(_c1, axis=0) * rstd / N_COLS
    c2 = tl.sum(_c2, axis=0) / N_COLS
    # Compute dx
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        mask = cols < N_COLS
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(DY + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(W + cols, mask=mask, other=0.0).to(tl.float32)
        xhat = (x - mean) * rstd
        dx = (w * dy - (xhat * c1 + c2)) * rstd
        # Write dx
        tl.store(DX + cols, dx.to(DX.dtype.element_ty), mask=mask)


@triton.jit
def weight_gradient_kernel(DY, X, Mean, Rstd, Sums, M, N, stride_dy, stride_x):
    """Accumulate partial sums of DW and DB; axis 0 has the columns, axis 1 the groups of rows."""
    pid = tl.program_id(0)
    group = tl.program_id(1)
    groups = tl.num_programs(1)
    cols = pid * COLS + tl.arange(0, COLS)
    dw = tl.zeros((ROWS, COLS), dtype=tl.float32)
    db = tl.zeros((ROWS, COLS), dtype=tl.float32)
    # Iterate through the rows of this group to sum up the partial sums.
    for i in range(group * ROWS, M, groups * ROWS):
        rows = i + tl.arange(0, ROWS).to(tl.int64)
        mask = (rows[:, None] < M) & (cols[None, :] < N)
        dy = tl.load(DY + rows[:, None] * stride_dy + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        x = tl.load(X + rows[:, None] * stride_x + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        mean = tl.load(Mean + rows, mask=rows < M, other=0.0)
        rstd = tl.load(Rstd + rows, mask=rows < M, other=0.0)
        xhat = (x - mean[:, None]) * rstd[:, None]
        dw += dy * xhat
        db += dy
    # Write the sums of the group.
    tl.store(Sums + group * N + cols, tl.sum(dw, axis=0), mask=cols < N)
    tl.store(Sums + (groups + group) * N + cols, tl.sum(db, axis=0), mask=cols < N)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """dx, dweight and dbias."""
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    if dbias is None:
        dbias = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    num_groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    mean = torch.empty((n_rows,), dtype=torch.float32, device=x.device)
    rstd = torch.empty((n_rows,), dtype=torch.float32, device=x.device)
    sums = torch.empty((2, num_groups, n_cols), dtype=torch.float32, device=x.device)
    # enqueue the kernel of dx, which also stores the statistics
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd,
        dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    # accumulate partial sums
    grid = (num_groups, triton.cdiv(n_cols, COLS))
    on(weight_gradient_kernel, x)[grid](
        dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
    )
    # final sums
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
        y = layer_norm_op(x, weight, bias, eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        x, w = ctx.saved_tensors
        dx, dw, db = backward_op(dy.contiguous(), x, w, ctx.eps)
        return dx, dw, db, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
