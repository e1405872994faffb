"""EXPECT WRONG/MISMATCH from layer_norm_backward, hint 6: S49 rows store dweight over each other"""

import torch
import triton
import triton.language as tl


@triton.jit
def gradient_kernel(dy_ptr, x_ptr, w_ptr, dx_ptr, dw_ptr, db_ptr, n_cols, stride_dy, stride_x, stride_dx, eps,
              BLOCK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    x_ptr += row * stride_x
    total = 0.0
    for k in range(0, n_cols, BLOCK):
        cols = k + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32), axis=0)
    mean = total / n_cols
    squares = 0.0
    for k in range(0, n_cols, BLOCK):
        cols = k + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        d = tl.where(cols < n_cols, x - mean, 0.0)
        squares += tl.sum(d * d, axis=0)
    rstd = tl.rsqrt(squares / n_cols + eps)
    c1, c2 = 0.0, 0.0
    for k in range(0, n_cols, BLOCK):
        cols = k + tl.arange(0, BLOCK)
        mask = cols < n_cols
        n = (tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
        g = tl.load(dy_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        g *= tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        c1 += tl.sum(g, axis=0) / n_cols
        c2 += tl.sum(g * n, axis=0) / n_cols
    for k in range(0, n_cols, BLOCK):
        cols = k + tl.arange(0, BLOCK)
        mask = cols < n_cols
        n = (tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
        w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        dx = rstd * (dy * w - c1 - n * c2)
        tl.store(dx_ptr + row * stride_dx + cols, dx, mask=mask)
        tl.store(dw_ptr + cols, dy * n, mask=mask)
        tl.store(db_ptr + cols, dy, mask=mask)


def layer_norm_backward(dy, x, weight, *, eps=1e-5, dx=None, dweight=None, dbias=None):
    n_rows, n_cols = x.shape
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    gradient_kernel[(n_rows,)](
        dy, x, weight, dx, dweight, dbias, n_cols, dy.stride(0), x.stride(0), dx.stride(0), eps, BLOCK=2048
    )
    return dx, dweight, dbias
