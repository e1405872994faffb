"""EXPECT PASS from rms_norm_forward and rms_norm_backward and rms_norm: a program has a tile of four rows."""

import torch
import triton
import triton.language as tl

ROWS = 4


@triton.jit
def tile(ptr, rows, cols, stride, n_rows, n_cols):
    inside = (rows < n_rows) & (cols < n_cols)
    return tl.load(ptr + rows * stride + cols, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def vector(ptr, cols, n_cols):
    return tl.load(ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.jit
def forward_kernel(x, w, y, n_rows, n_cols, sx, sy, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    squares = tl.zeros((ROWS, BLOCK), tl.float32)
    for k in range(0, n_cols, BLOCK):
        t = tile(x, rows, k + lanes, sx, n_rows, n_cols)
        squares += t * t
    r = tl.rsqrt(tl.sum(squares, axis=1, keep_dims=True) / n_cols + eps)
    for k in range(0, n_cols, BLOCK):
        value = tile(x, rows, k + lanes, sx, n_rows, n_cols) * r * vector(w, k + lanes, n_cols)
        inside = (rows < n_rows) & (k + lanes < n_cols)
        tl.store(y + rows * sy + k + lanes, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(dy, x, w, dx, part, n_rows, n_cols, sdy, sx, sdx, eps,
                    ROWS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    group = tl.program_id(0).to(tl.int64)
    rows = (group * ROWS + tl.arange(0, ROWS))[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    squares = tl.zeros((ROWS, BLOCK), tl.float32)
    products = tl.zeros((ROWS, BLOCK), tl.float32)
    for k in range(0, n_cols, BLOCK):
        t = tile(x, rows, k + lanes, sx, n_rows, n_cols)
        g = tile(dy, rows, k + lanes, sdy, n_rows, n_cols) * vector(w, k + lanes, n_cols)
        squares += t * t
        products += t * g
    # A row past the end would be 0 * inf where eps is 0.
    r = tl.where(rows < n_rows, tl.rsqrt(tl.sum(squares, axis=1, keep_dims=True) / n_cols + eps), 0.0)
    c = tl.sum(products, axis=1, keep_dims=True) / n_cols * r
    for k in range(0, n_cols, BLOCK):
        n = tile(x, rows, k + lanes, sx, n_rows, n_cols) * r
        d = tile(dy, rows, k + lanes, sdy, n_rows, n_cols)
        value = r * (d * vector(w, k + lanes, n_cols) - n * c)
        inside = (rows < n_rows) & (k + lanes < n_cols)
        tl.store(dx + rows * sdx + k + lanes, value.to(dx.dtype.element_ty), mask=inside)
        cols = k + tl.arange(0, BLOCK)
        tl.store(part + group * n_cols + cols, tl.sum(d * n, axis=0), mask=cols < n_cols)


@triton.jit
def column_kernel(part, dw, groups, n_cols, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for group in range(groups):
        total += vector(part + group * n_cols, cols, n_cols)
    tl.store(dw + cols, total.to(dw.dtype.element_ty), mask=cols < n_cols)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None):
    out = torch.empty_like(x) if out is None else out
    (n_rows, n_cols), block = x.shape, min(1024, triton.next_power_of_2(x.shape[1]))
    grid = (triton.cdiv(n_rows, ROWS),)
    forward_kernel[grid](
        x, weight, out, n_rows, n_cols, x.stride(0), out.stride(0), eps, ROWS=ROWS, BLOCK=block
    )
    return out


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    (n_rows, n_cols), block = x.shape, min(1024, triton.next_power_of_2(x.shape[1]))
    groups = triton.cdiv(n_rows, ROWS)
    part = torch.empty((groups, n_cols), dtype=torch.float32, device=x.device)
    backward_kernel[(groups,)](
        dy,
        x,
        weight,
        dx,
        part,
        n_rows,
        n_cols,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        ROWS=ROWS,
        BLOCK=block,
    )
    column_kernel[(triton.cdiv(n_cols, 128),)](part, dweight, groups, n_cols, BLOCK=128)
    return dx, dweight


class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return rms_norm_forward(x, weight, eps=eps)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx, dweight = rms_norm_backward(dy.contiguous(), x, weight, eps=ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6):
    return RMSNorm.apply(x, weight, eps)
