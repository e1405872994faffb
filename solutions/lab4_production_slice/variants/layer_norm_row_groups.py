"""EXPECT PASS from layer_norm_forward and layer_norm_backward and layer_norm: sums in two stages."""

import torch
import triton
import triton.language as tl

BLOCK, GROUPS = 2048, 64


@triton.jit
def forward_kernel(x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, n_cols, x_stride, y_stride, eps,
                   BLOCK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    y_ptr += row * y_stride
    cols = tl.arange(0, BLOCK)
    mean = 0.0
    for k in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + k + cols, mask=k + cols < n_cols, other=0.0)
        mean += tl.sum(x.to(tl.float32), axis=0)
    mean /= n_cols
    var = 0.0
    for k in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + k + cols, mask=k + cols < n_cols, other=0.0)
        d = tl.where(k + cols < n_cols, x.to(tl.float32) - mean, 0.0)
        var += tl.sum(d * d, axis=0)
    rstd = 1.0 / tl.sqrt(var / n_cols + eps)
    for k in range(0, n_cols, BLOCK):
        mask = k + cols < n_cols
        x = tl.load(x_ptr + k + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + k + cols, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + k + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + k + cols, (x - mean) * rstd * w + b, mask=mask)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, n_cols, x_stride, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, n_cols, BLOCK):
        total += tl.load(x_ptr + row * x_stride + k + cols, mask=k + cols < n_cols, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n_cols
    squares = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + row * x_stride + k + cols, mask=k + cols < n_cols, other=0.0).to(tl.float32)
        squares += tl.where(k + cols < n_cols, (x - mean) * (x - mean), 0.0)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps))


@triton.jit
def dx_kernel(dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, n_cols, dy_stride, x_stride, dx_stride,
              BLOCK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mean, rstd = tl.load(mean_ptr + row), tl.load(rstd_ptr + row)
    a, b = 0.0, 0.0
    for k in range(0, n_cols, BLOCK):
        mask = k + cols < n_cols
        g = tl.load(dy_ptr + row * dy_stride + k + cols, mask=mask, other=0.0).to(tl.float32)
        g *= tl.load(w_ptr + k + cols, mask=mask, other=0.0).to(tl.float32)
        n = (tl.load(x_ptr + row * x_stride + k + cols, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
        a += tl.sum(g, axis=0)
        b += tl.sum(g * n, axis=0)
    for k in range(0, n_cols, BLOCK):
        mask = k + cols < n_cols
        g = tl.load(dy_ptr + row * dy_stride + k + cols, mask=mask, other=0.0).to(tl.float32)
        g *= tl.load(w_ptr + k + cols, mask=mask, other=0.0).to(tl.float32)
        n = (tl.load(x_ptr + row * x_stride + k + cols, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
        tl.store(dx_ptr + row * dx_stride + k + cols, (g - a / n_cols - n * (b / n_cols)) * rstd, mask=mask)


@triton.jit
def group_sums_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, dy_stride, x_stride,
                      per_group, BLOCK: tl.constexpr):  # fmt: skip
    """Stage one: program (i, k) adds up the rows of group i in block k."""
    group = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    dw, db = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for row in range(group * per_group, min((group + 1) * per_group, n_rows)):
        dy = tl.load(dy_ptr + row * dy_stride + cols, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
        dw += dy * (x - tl.load(mean_ptr + row)) * tl.load(rstd_ptr + row)
        db += dy
    tl.store(sums_ptr + (2 * group) * n_cols + cols, dw, mask=mask)
    tl.store(sums_ptr + (2 * group + 1) * n_cols + cols, db, mask=mask)


@triton.jit
def add_groups_kernel(sums_ptr, dw_ptr, db_ptr, groups, n_cols, BLOCK: tl.constexpr):
    """Stage two."""
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    dw, db = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for group in range(groups):
        dw += tl.load(sums_ptr + (2 * group) * n_cols + cols, mask=mask, other=0.0)
        db += tl.load(sums_ptr + (2 * group + 1) * n_cols + cols, mask=mask, other=0.0)
    tl.store(dw_ptr + cols, dw.to(dw_ptr.dtype.element_ty), mask=mask)
    tl.store(db_ptr + cols, db.to(db_ptr.dtype.element_ty), mask=mask)


def scratch(x, *shape):
    return torch.empty(shape, dtype=torch.float32, device=x.device)


def normalise(x, weight, bias, y, eps):
    n_rows, n_cols = x.shape
    mean, rstd = scratch(x, n_rows), scratch(x, n_rows)
    forward_kernel[(n_rows,)](
        x, weight, bias, y, mean, rstd, n_cols, x.stride(0), y.stride(0), eps, BLOCK=BLOCK
    )
    return mean, rstd


def gradients(dy, x, weight, mean, rstd, dx, dweight, dbias):
    n_rows, n_cols = x.shape
    dx_kernel[(n_rows,)](
        dy, x, weight, mean, rstd, dx, n_cols, dy.stride(0), x.stride(0), dx.stride(0), BLOCK=BLOCK
    )
    per_group = triton.cdiv(n_rows, GROUPS)
    groups = triton.cdiv(n_rows, per_group)
    sums = scratch(x, groups, 2, n_cols)
    group_sums_kernel[(groups, triton.cdiv(n_cols, 512))](
        dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0), per_group, BLOCK=512
    )
    add_groups_kernel[(triton.cdiv(n_cols, 256),)](sums, dweight, dbias, groups, n_cols, BLOCK=256)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None):
    if out is None:
        out = torch.empty_like(x)
    normalise(x, weight, bias, out, eps)
    return out


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    mean, rstd = scratch(x, n_rows), scratch(x, n_rows)
    statistics_kernel[(n_rows,)](x, mean, rstd, n_cols, x.stride(0), eps, BLOCK=BLOCK)
    gradients(dy, x, weight, mean, rstd, dx, dweight, dbias)
    return dx, dweight, dbias


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        y = torch.empty_like(x)
        mean, rstd = normalise(x, weight, bias, y, eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, mean, rstd = ctx.saved_tensors
        dx, dweight, dbias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
        gradients(dy.contiguous(), x, weight, mean, rstd, dx, dweight, dbias)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5):
    return LayerNorm.apply(x, weight, bias, eps)
