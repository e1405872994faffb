# labs/lab4_production_slice/layer_norm_backward.py | error | `ROWS` and `COLS` are plain integers of the module and are read inside `column_kernel`: Triton refuses globals that are no constexpr (NameError at compile time), they must be tl.constexpr(16) and tl.constexpr(128) or arguments. The interpreter accepts it and gives right numbers; every compilation for a GPU fails
"""The gradients of LayerNorm: one kernel along the rows, one along the columns."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS = 16
COLS = 128


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def row_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, mean_ptr, rstd_ptr, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    dy_ptr += i * stride_dy
    x_ptr += i * stride_x
    dx_ptr += i * stride_dx
    total = 0.0
    for j in range(0, N_COLS, BLOCK):
        total += tl.sum(load(x_ptr, j + tl.arange(0, BLOCK), N_COLS), axis=0)
    mean = total / N_COLS
    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for j in range(0, N_COLS, BLOCK):
        cols = j + tl.arange(0, BLOCK)
        d = tl.where(cols < N_COLS, load(x_ptr, cols, N_COLS) - mean, 0.0)
        g = load(dy_ptr, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        squares += tl.sum(d * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + i, mean)
    tl.store(rstd_ptr + i, rstd)
    for j in range(0, N_COLS, BLOCK):
        cols = j + tl.arange(0, BLOCK)
        n = (load(x_ptr, cols, N_COLS) - mean) * rstd
        g = load(dy_ptr, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_ptr, cols, N_COLS, rstd * (g - (sum_g + n * sum_gd * rstd) / N_COLS))


@triton.jit
def column_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    group = tl.program_id(1)
    groups = tl.num_programs(1)
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    dw = tl.zeros((ROWS, COLS), dtype=tl.float32)
    db = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for first in range(group * ROWS, n_rows, groups * ROWS):
        rows = (first + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        mask = (rows < n_rows) & (cols[None, :] < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=mask, other=0.0).to(tl.float32)
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
    mean = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    on(row_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    sums = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)
    on(column_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
    )
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
        grads = backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps)
        return grads[0], grads[1], grads[2], None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    return LayerNorm.apply(x, weight, bias, eps)
