# labs/lab4_production_slice/layer_norm_backward.py | two mistakes | (1) dx_kernel keeps only the last block's sum of g (sum_g = ..., must be +=): dx is wrong for n_cols > 1024; (2) the loop of weight_gradient_kernel steps ROWS, it must step groups * ROWS: dweight and dbias count rows several times for n_rows > 16
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator.

Written along the lines of Triton's tutorial 05, but without its lock: every group of rows has its own line in a
buffer of partial sums, and `column_sums` adds the lines up.
"""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile that a program of weight_gradient_kernel loads


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    DY,  # pointer to the output gradient
    X,  # pointer to the input
    W,  # pointer to the weight
    DX,  # pointer to the input gradient
    Mean,  # pointer to the mean
    Rstd,  # pointer to 1/std
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # Map the program id to the row of X, DY and DX it should work on
    row = tl.program_id(0).to(tl.int64)
    X += row * stride_x
    DY += row * stride_dy
    DX += row * stride_dx
    # Compute mean
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        total += load(X, cols, N_COLS)
    mean = tl.sum(total, axis=0) / N_COLS
    # Compute variance and the two sums of the gradient
    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        x = load(X, cols, N_COLS)
        d = tl.where(cols < N_COLS, x - mean, 0.0)
        g = load(DY, cols, N_COLS) * load(W, cols, N_COLS)
        squares += tl.sum(d * d, axis=0)
        sum_g = tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    # Write mean / rstd
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    # Compute dx
    c1 = sum_gd * rstd / N_COLS
    c2 = sum_g / N_COLS
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        xhat = (load(X, cols, N_COLS) - mean) * rstd
        wdy = load(DY, cols, N_COLS) * load(W, cols, N_COLS)
        dx = (wdy - (xhat * c1 + c2)) * rstd
        # Write dx
        store(DX, cols, N_COLS, dx)


@triton.jit
def weight_gradient_kernel(DY, X, Mean, Rstd, Sums, n_rows, n_cols, stride_dy, stride_x):
    # Map the program ids to the columns and the group of rows it should compute
    group = tl.program_id(1)
    groups = tl.num_programs(1)
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    dw = tl.zeros((ROWS, COLS), dtype=tl.float32)
    db = tl.zeros((ROWS, COLS), dtype=tl.float32)
    # Iterate through the rows of DY and X to sum up the partial sums
    for i in range(group * ROWS, n_rows, ROWS):
        rows = i + tl.arange(0, ROWS)[:, None]
        mask = (rows < n_rows) & (cols < n_cols)
        rows64 = rows.to(tl.int64)
        dy = tl.load(DY + rows64 * stride_dy + cols, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(X + rows64 * stride_x + cols, mask=mask, other=0.0).to(tl.float32)
        mean = tl.load(Mean + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(Rstd + rows, mask=rows < n_rows, other=0.0)
        xhat = (x - mean) * rstd
        dw += dy * xhat
        db += dy
    # Write the sums of this group
    store(Sums + group * n_cols, cols, n_cols, tl.sum(dw, axis=0))
    store(Sums + (groups + group) * n_cols, cols, n_cols, tl.sum(db, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    # allocate output
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    M, N = x.shape
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    sums = x.new_empty((2, min(GROUPS, triton.cdiv(M, ROWS)), N), dtype=torch.float32)
    # 1024 columns at a time: fewer registers, so more programs for each SM
    BLOCK = min(block_of(N), 1024)
    on(dx_kernel, x)[(M,)](
        dy, x, weight, dx, mean, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps, N_COLS=N, BLOCK=BLOCK
    )
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
        x, w = ctx.saved_tensors
        dx, dw, db = backward_op(dy.contiguous(), x, w, ctx.eps)
        return dx, dw, db, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
