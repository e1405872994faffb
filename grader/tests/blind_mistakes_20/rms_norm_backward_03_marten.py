# labs/lab4_production_slice/rms_norm_backward.py | right | right
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator.

The first kernel finds two numbers for each row. After that no element of dx depends on another, so the second
kernel goes through the matrices by tiles, stores dx and adds up dy * n on the way. The third folds the groups.
"""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

GROUPS = 64
TALL, WIDE = tl.constexpr(16), tl.constexpr(128)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def two_numbers_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    rstd_ptr,
    pull_ptr,
    stride_dy,
    stride_x,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """rstd of row i, and pull = mean(g * n), by program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    squares = 0.0
    gx = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_ptr + row * stride_x, cols, N_COLS)
        g = load(dy_ptr + row * stride_dy, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        squares += tl.sum(x * x, axis=0)
        gx += tl.sum(g * x, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    tl.store(pull_ptr + row, gx * rstd / N_COLS)


@triton.jit
def tiles_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    rstd_ptr,
    pull_ptr,
    dx_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    stride_dx,
):
    """dx of every tile of group k in WIDE columns, and the sums of dy * n over the group, to row k of sums."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)
    across = cols[None, :]
    weight = load(weight_ptr, cols, n_cols)[None, :]
    dweight = tl.zeros((TALL, WIDE), dtype=tl.float32)
    for start in range(group * TALL, n_rows, groups * TALL):
        rows = (start + tl.arange(0, TALL)).to(tl.int64)[:, None]
        exists = rows < n_rows
        inside = exists & (across < n_cols)
        rstd = tl.load(rstd_ptr + rows, mask=exists, other=0.0)
        pull = tl.load(pull_ptr + rows, mask=exists, other=0.0)
        dy = tl.load(dy_ptr + rows * stride_dy + across, mask=inside, other=0.0).to(tl.float32)
        n = tl.load(x_ptr + rows * stride_x + across, mask=inside, other=0.0).to(tl.float32) * rstd
        dx = (dy * weight - n * pull) * rstd
        tl.store(dx_ptr + rows * stride_dx + across, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        dweight += dy * n
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


@triton.jit
def fold_kernel(sums_ptr, out_ptr, groups, n_cols):
    """out = the sum of the rows of sums, added from the first to the last."""
    cols = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)
    total = tl.zeros((WIDE,), dtype=tl.float32)
    for group in range(0, groups):
        total += load(sums_ptr + group * n_cols, cols, n_cols)
    store(out_ptr, cols, n_cols, total)


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    across, groups = triton.cdiv(n_cols, WIDE), min(GROUPS, triton.cdiv(n_rows, TALL))
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    pull = torch.empty_like(rstd)
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)

    launch = on(two_numbers_kernel, x)[(n_rows,)]
    launch(
        dy, x, weight, rstd, pull, dy.stride(0), x.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    launch = on(tiles_kernel, x)[(across, groups)]
    strides = (dy.stride(0), x.stride(0), dx.stride(0))
    launch(dy, x, weight, rstd, pull, dx, sums, n_rows, n_cols, *strides)
    on(fold_kernel, x)[(across,)](sums, dweight, groups, n_cols)
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
