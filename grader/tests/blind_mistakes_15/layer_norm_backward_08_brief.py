# labs/lab4_production_slice/layer_norm_backward.py | error | In weight_gradient_kernel mean and rstd are loaded at `rows`, a vector of ROWS = 16, and meet tiles of (16, 128) as they are: the shapes do not broadcast and the kernel fails; they should be columns, as mean[:, None] and rstd[:, None].
"""The gradients of LayerNorm."""

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
def dx_kernel(dy_ptr, x_ptr, weight_ptr, dx_ptr, mean_ptr, rstd_ptr, stride_dy, stride_x, stride_dx, eps,
              N_COLS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    r = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + r * stride_dy
    x_row = x_ptr + r * stride_x
    mean = 0.0
    for k in range(0, N_COLS, BLOCK):
        mean += tl.sum(load(x_row, k + tl.arange(0, BLOCK), N_COLS), axis=0)
    mean = mean / N_COLS
    var = 0.0
    a = 0.0
    b = 0.0
    for k in range(0, N_COLS, BLOCK):
        c = k + tl.arange(0, BLOCK)
        d = tl.where(c < N_COLS, load(x_row, c, N_COLS) - mean, 0.0)
        g = load(dy_row, c, N_COLS) * load(weight_ptr, c, N_COLS)
        var += tl.sum(d * d, axis=0)
        a += tl.sum(g, axis=0)
        b += tl.sum(g * d, axis=0)
    rstd = tl.rsqrt(var / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + r, mean)
    tl.store(rstd_ptr + r, rstd)
    a = a / N_COLS
    b = b * rstd / N_COLS
    for k in range(0, N_COLS, BLOCK):
        c = k + tl.arange(0, BLOCK)
        n = (load(x_row, c, N_COLS) - mean) * rstd
        g = load(dy_row, c, N_COLS) * load(weight_ptr, c, N_COLS)
        store(dx_ptr + r * stride_dx, c, N_COLS, rstd * (g - a - n * b))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dw = tl.zeros((ROWS, COLS), dtype=tl.float32)
    db = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = start + tl.arange(0, ROWS)
        m = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        r = rows.to(tl.int64)[:, None]
        dy = tl.load(dy_ptr + r * stride_dy + cols[None, :], mask=m, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + r * stride_x + cols[None, :], mask=m, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dw += dy * (x - mean) * rstd
        db += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dw, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(db, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = x.new_empty((2, min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](dy, x, weight, dx, mean, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
                                N_COLS=n_cols, BLOCK=block_of(n_cols))  # fmt: skip
    grid = (triton.cdiv(n_cols, COLS), sums.shape[1])
    on(weight_gradient_kernel, x)[grid](dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0))
    column_sums(sums[0], dweight)
    column_sums(sums[1], dbias)
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    return LayerNorm.apply(x, weight, bias, eps)
