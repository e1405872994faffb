"""EXPECT WRONG/MISMATCH from layer_norm_backward, hint 6: S49 rows after the first 4 are in no sum"""

import torch
import triton
import triton.language as tl


@triton.jit
def dx_kernel(dy_ptr, x_ptr, w_ptr, dx_ptr, mean_ptr, rstd_ptr, n_cols, stride_dy, stride_x, stride_dx, eps,
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
        g = tl.load(dy_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        g *= tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        dx = rstd * (g - c1 - n * c2)
        tl.store(dx_ptr + row * stride_dx + cols, dx, mask=mask)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def dw_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, dw_ptr, db_ptr, n_rows, n_cols, stride_dy, stride_x,
              BLOCK: tl.constexpr):  # fmt: skip
    """Each program adds up one block of columns, from the first row to the last."""
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    dw = tl.zeros((BLOCK,), tl.float32)
    db = tl.zeros((BLOCK,), tl.float32)
    for row in range(min(n_rows, 4)):
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * stride_x + cols, mask=mask, other=0.0).to(tl.float32)
        dw += dy * (x - tl.load(mean_ptr + row)) * tl.load(rstd_ptr + row)
        db += dy
    tl.store(dw_ptr + cols, dw, mask=mask)
    tl.store(db_ptr + cols, db, mask=mask)


def layer_norm_backward(dy, x, weight, *, eps=1e-5, dx=None, dweight=None, dbias=None):
    n_rows, n_cols = x.shape
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    mean = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    rstd = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    dx_kernel[(n_rows,)](
        dy, x, weight, dx, mean, rstd, n_cols, dy.stride(0), x.stride(0), dx.stride(0), eps, BLOCK=2048
    )
    dw_kernel[(triton.cdiv(n_cols, 128),)](
        dy, x, mean, rstd, dweight, dbias, n_rows, n_cols, dy.stride(0), x.stride(0), BLOCK=128
    )
    return dx, dweight, dbias
