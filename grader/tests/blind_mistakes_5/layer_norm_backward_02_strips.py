# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | weight_gradient_kernel takes n = x * rstd, without subtracting the mean of the row, so dweight is wrong; n must be (x - mean) * rstd. dx and dbias are right.
"""Backward pass of LayerNorm. dx by rows (lane sums, one reduction each), dweight/dbias by column strips."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, on
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.jit
def get(ptr, idx, ok):
    return tl.load(ptr + idx, mask=ok, other=0.0).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    mean_ptr,
    rstd_ptr,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    r = tl.program_id(axis=0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    blocks = tl.cdiv(N_COLS, BLOCK)

    s0 = tl.zeros((BLOCK,), tl.float32)
    for b in range(blocks):
        k = b * BLOCK + c
        s0 += get(x_ptr + r * stride_x, k, k < N_COLS)
    mean = tl.sum(s0, axis=0) / N_COLS

    s1 = tl.zeros((BLOCK,), tl.float32)
    s2 = tl.zeros((BLOCK,), tl.float32)
    s3 = tl.zeros((BLOCK,), tl.float32)
    for b in range(blocks):
        k = b * BLOCK + c
        ok = k < N_COLS
        d = tl.where(ok, get(x_ptr + r * stride_x, k, ok) - mean, 0.0)
        g = get(dy_ptr + r * stride_dy, k, ok) * get(weight_ptr, k, ok)
        s1 += d * d
        s2 += g
        s3 += g * d
    rstd = tl.rsqrt(tl.sum(s1, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    mean_g = tl.sum(s2, axis=0) / N_COLS
    mean_gn = tl.sum(s3, axis=0) * rstd / N_COLS
    tl.store(mean_ptr + r, mean)
    tl.store(rstd_ptr + r, rstd)

    for b in range(blocks):
        k = b * BLOCK + c
        ok = k < N_COLS
        n = (get(x_ptr + r * stride_x, k, ok) - mean) * rstd
        g = get(dy_ptr + r * stride_dy, k, ok) * get(weight_ptr, k, ok)
        dx = (g - mean_g - n * mean_gn) * rstd
        tl.store(dx_ptr + r * stride_dx + k, dx.to(dx_ptr.dtype.element_ty), mask=ok)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    k = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)[None, :]
    group, groups = tl.program_id(axis=1), tl.num_programs(axis=1)
    dw = tl.zeros((ROWS, COLS), tl.float32)
    db = tl.zeros((ROWS, COLS), tl.float32)
    first = group * ROWS
    while first < n_rows:
        r = first + tl.arange(0, ROWS)[:, None].to(tl.int64)
        ok = (r < n_rows) & (k < n_cols)
        g = get(dy_ptr, r * stride_dy + k, ok)
        n = get(x_ptr, r * stride_x + k, ok) * get(rstd_ptr, r, r < n_rows)
        dw += g * n
        db += g
        first += groups * ROWS
    at = sums_ptr + group * n_cols + k
    tl.store(at, tl.sum(dw, axis=0)[None, :], mask=k < n_cols)
    tl.store(at + groups * n_cols, tl.sum(db, axis=0)[None, :], mask=k < n_cols)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    if dbias is None:
        dbias = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    mean = torch.empty(n_rows, device=x.device, dtype=torch.float32)
    rstd = torch.empty(n_rows, device=x.device, dtype=torch.float32)
    sums = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy,
        x,
        weight,
        dx,
        mean,
        rstd,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
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
        y = layer_norm_op(x, weight, bias, eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx, dweight, dbias = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    return LayerNorm.apply(x, weight, bias, eps)
