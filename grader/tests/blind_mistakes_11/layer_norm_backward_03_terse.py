# labs/lab4_production_slice/layer_norm_backward.py | corner | LayerNorm.forward uses eps, but keeps nothing of it, and LayerNorm.backward passes the module's EPS = 1e-5 to backward_op; it must be the eps of the call (ctx.eps). Shows in the gradients of layer_norm where eps is not 1e-5 and is not small beside the variance (eps = 1, or small variances).
"""LayerNorm backward: dx by rows, dweight and dbias by columns."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

EPS = 1e-5
GROUPS = 64
HEIGHT = tl.constexpr(8)
WIDTH = tl.constexpr(256)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dx_ptr, dy_ptr, x_ptr, w_ptr, stats_ptr, n_rows, s_dx, s_dy, s_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx; mean and rstd go to the two rows of stats."""
    i = tl.program_id(0)
    x_row = x_ptr + i.to(tl.int64) * s_x
    dy_row = dy_ptr + i.to(tl.int64) * s_dy
    dx_row = dx_ptr + i.to(tl.int64) * s_dx

    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for c in range(0, N_COLS, BLOCK):
        total += load(x_row, c + tl.arange(0, BLOCK), N_COLS)
    mean = tl.sum(total, axis=0) / N_COLS

    dd = tl.zeros((BLOCK,), dtype=tl.float32)
    gs = tl.zeros((BLOCK,), dtype=tl.float32)
    gd = tl.zeros((BLOCK,), dtype=tl.float32)
    for c in range(0, N_COLS, BLOCK):
        cols = c + tl.arange(0, BLOCK)
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(dy_row, cols, N_COLS) * load(w_ptr, cols, N_COLS)
        dd += d * d
        gs += g
        gd += g * d
    rstd = tl.rsqrt(tl.sum(dd, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    mean_g = tl.sum(gs, axis=0) / N_COLS
    mean_gn = tl.sum(gd, axis=0) / N_COLS * rstd
    tl.store(stats_ptr + i, mean)
    tl.store(stats_ptr + n_rows + i, rstd)

    for c in range(0, N_COLS, BLOCK):
        cols = c + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(w_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))


@triton.jit
def partial_kernel(dy_ptr, x_ptr, stats_ptr, dw_ptr, db_ptr, n_rows, n_cols, s_dy, s_x):
    """Row k of dw and db: the sums of group k."""
    k = tl.program_id(1)
    cols = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)[None, :]
    dw = tl.zeros((HEIGHT, WIDTH), dtype=tl.float32)
    db = tl.zeros((HEIGHT, WIDTH), dtype=tl.float32)
    for r in range(k * HEIGHT, n_rows, tl.num_programs(1) * HEIGHT):
        rows = r + tl.arange(0, HEIGHT)[:, None]
        ok = (rows < n_rows) & (cols < n_cols)
        mean = tl.load(stats_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(stats_ptr + n_rows + rows, mask=rows < n_rows, other=0.0)
        rows = rows.to(tl.int64)
        dy = tl.load(dy_ptr + rows * s_dy + cols, mask=ok, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * s_x + cols, mask=ok, other=0.0).to(tl.float32)
        dw += dy * (x - mean) * rstd
        db += dy
    place = k * n_cols + tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    live = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH) < n_cols
    tl.store(dw_ptr + place, tl.sum(dw, axis=0), mask=live)
    tl.store(db_ptr + place, tl.sum(db, axis=0), mask=live)


def layer_norm_backward(dy, x, weight, *, eps: float = EPS, dx=None, dweight=None, dbias=None):
    """The three gradients."""
    n_rows, n_cols = x.shape
    dx = dx if dx is not None else torch.empty_like(x)
    dweight = dweight if dweight is not None else torch.empty_like(weight)
    dbias = dbias if dbias is not None else torch.empty_like(weight)
    stats = torch.empty((2, n_rows), dtype=torch.float32, device=x.device)
    on(dx_kernel, x)[(n_rows,)](
        dx, dy, x, weight, stats, n_rows, dx.stride(0), dy.stride(0), x.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    groups = min(GROUPS, triton.cdiv(n_rows, 8))
    dw = torch.empty((groups, n_cols), dtype=torch.float32, device=x.device)
    db = torch.empty((groups, n_cols), dtype=torch.float32, device=x.device)
    on(partial_kernel, x)[(triton.cdiv(n_cols, 256), groups)](
        dy, x, stats, dw, db, n_rows, n_cols, dy.stride(0), x.stride(0)
    )
    column_sums(dw, dweight)
    column_sums(db, dbias)
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients as an operator."""
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    """Autograd."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        ctx.save_for_backward(x, weight)
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx, dw, db = backward_op(dy.contiguous(), x, weight, EPS)
        return dx, dw, db, None


def layer_norm(x, weight, bias, eps: float = EPS) -> torch.Tensor:
    """Differentiable LayerNorm."""
    return LayerNorm.apply(x, weight, bias, eps)
