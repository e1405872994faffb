# labs/lab4_production_slice/rms_norm_backward.py | corner | RMSNorm.backward copies dy only where its row stride is 0, it must call contiguous() for every layout: wrong in the differentiable rms_norm where dy is transposed or every second column of a wider matrix; contiguous and expanded dy are right
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(32), tl.constexpr(64)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, w_ptr, dx_ptr, rstd_ptr, s_dy, s_x, s_dx, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * s_dy
    x_ptr += row * s_x
    dx_ptr += row * s_dx
    lanes = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        x = load(x_ptr, lanes, N_COLS)
        g = load(dy_ptr, lanes, N_COLS) * load(w_ptr, lanes, N_COLS)
        rstd = tl.rsqrt(tl.sum(x * x, axis=0) / N_COLS + tl.cast(eps, tl.float32))
        n = x * rstd
        store(dx_ptr, lanes, N_COLS, rstd * (g - n * (tl.sum(g * n, axis=0) / N_COLS)))
        tl.store(rstd_ptr + row, rstd)
    else:
        xx = 0.0
        gx = 0.0
        for start in range(0, N_COLS, BLOCK):
            x = load(x_ptr, start + lanes, N_COLS)
            g = load(dy_ptr, start + lanes, N_COLS) * load(w_ptr, start + lanes, N_COLS)
            xx += tl.sum(x * x, axis=0)
            gx += tl.sum(g * x, axis=0)
        rstd = tl.rsqrt(xx / N_COLS + tl.cast(eps, tl.float32))
        mean_gn = gx * rstd / N_COLS
        for start in range(0, N_COLS, BLOCK):
            n = load(x_ptr, start + lanes, N_COLS) * rstd
            g = load(dy_ptr, start + lanes, N_COLS) * load(w_ptr, start + lanes, N_COLS)
            store(dx_ptr, start + lanes, N_COLS, rstd * (g - n * mean_gn))
        tl.store(rstd_ptr + row, rstd)


@triton.jit
def dw_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, s_dy, s_x):
    group = tl.program_id(1)
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    dw = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, tl.num_programs(1) * ROWS):
        rows = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        n = tl.load(x_ptr + rows * s_x + cols, mask=inside, other=0.0).to(tl.float32)
        n *= tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dw += n * tl.load(dy_ptr + rows * s_dy + cols, mask=inside, other=0.0).to(tl.float32)
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dw, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = x.new_empty((n_rows,), dtype=torch.float32)
    sums = x.new_empty((min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    s = dy.stride(0), x.stride(0)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, *s, dx.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    on(dw_kernel, x)[(triton.cdiv(n_cols, COLS), sums.shape[0])](dy, x, rstd, sums, n_rows, n_cols, *s)
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
        # y.sum() gives an expanded dy. Otherwise save the copy: the kernels know the row stride of dy.
        if dy.stride(0) == 0:
            dy = dy.contiguous()
        return *backward_op(dy, x, weight, ctx.eps), None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
