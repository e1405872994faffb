# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | `dy` is multiplied by the weight in place (`dy = dy * w`), and after dx the same name is added to the partial sums, so dweight and dbias are sums of g * n and of g: they must be sums of dy * n and of dy. dx is right; the other two are wrong unless the weight is 1
"""All three gradients of LayerNorm from one kernel; each program keeps partial sums of its rows in memory."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import block_of, column_sums, load, on, store
from torch.library import triton_op

PROGRAMS = 264


@triton.jit
def row_statistics(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    s = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in range(0, N_COLS, BLOCK):
        s += load(x_row, k + c, N_COLS)
    mean = tl.sum(s, axis=0) / N_COLS
    q = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in range(0, N_COLS, BLOCK):
        d = tl.where(k + c < N_COLS, load(x_row, k + c, N_COLS) - mean, 0.0)
        q += d * d
    return mean, 1.0 / tl.sqrt(tl.sum(q, axis=0) / N_COLS + tl.cast(eps, tl.float32))


@triton.jit
def gradients_kernel(
    dy_ptr, x_ptr, w_ptr, dx_ptr, dw_parts, db_parts, n_rows, dy_stride, x_stride, dx_stride, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    me = tl.program_id(0).to(tl.int64)
    my_dw = dw_parts + me * N_COLS
    my_db = db_parts + me * N_COLS
    c = tl.arange(0, BLOCK)
    row = me
    while row < n_rows:
        x_row = x_ptr + row * x_stride
        dy_row = dy_ptr + row * dy_stride
        mean, rstd = row_statistics(x_row, eps, N_COLS, BLOCK)
        sum_g = tl.zeros((BLOCK,), dtype=tl.float32)
        sum_gn = tl.zeros((BLOCK,), dtype=tl.float32)
        for k in range(0, N_COLS, BLOCK):
            g = load(dy_row, k + c, N_COLS) * load(w_ptr, k + c, N_COLS)
            sum_g += g
            sum_gn += g * ((load(x_row, k + c, N_COLS) - mean) * rstd)
        a = tl.sum(sum_g, axis=0) / N_COLS
        b = tl.sum(sum_gn, axis=0) / N_COLS
        for k in range(0, N_COLS, BLOCK):
            cols = k + c
            dy = load(dy_row, cols, N_COLS)
            w = load(w_ptr, cols, N_COLS)
            n = (load(x_row, cols, N_COLS) - mean) * rstd
            dy = dy * w
            store(dx_ptr + row * dx_stride, cols, N_COLS, (dy - a - n * b) * rstd)
            store(my_dw, cols, N_COLS, load(my_dw, cols, N_COLS) + dy * n)
            store(my_db, cols, N_COLS, load(my_db, cols, N_COLS) + dy)
        row += tl.num_programs(0)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    programs = min(PROGRAMS, n_rows)
    dw_parts = torch.zeros((programs, n_cols), device=x.device, dtype=torch.float32)
    db_parts = torch.zeros((programs, n_cols), device=x.device, dtype=torch.float32)
    on(gradients_kernel, x)[(programs,)](
        dy, x, weight, dx, dw_parts, db_parts, n_rows, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols), num_warps=16,
    )  # fmt: skip
    column_sums(dw_parts, dweight)
    column_sums(db_parts, dbias)
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        ctx.eps = eps
        ctx.save_for_backward(x, weight)
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        return (*backward_op(dy.contiguous(), x, weight, ctx.eps), None)


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    return LayerNorm.apply(x, weight, bias, eps)
