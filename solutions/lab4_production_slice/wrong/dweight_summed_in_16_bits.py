"""EXPECT WRONG/PRECISION from rms_norm_backward, hint 3: the sum over rows keeps the dtype of weight"""

import torch
import triton
import triton.language as tl


@triton.jit
def rms_backward_kernel(dy_ptr, x_ptr, w_ptr, dx_ptr, part_ptr, n_cols, dy_stride, x_stride, dx_stride, eps,
                        BLOCK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    ss, dot = 0.0, 0.0
    for k in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + row * x_stride + k + cols, mask=k + cols < n_cols, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * dy_stride + k + cols, mask=k + cols < n_cols, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + k + cols, mask=k + cols < n_cols, other=0.0).to(tl.float32)
        ss += tl.sum(x * x, axis=0)
        dot += tl.sum(dy * w * x, axis=0)
    rrms = tl.rsqrt(ss / n_cols + eps)
    for k in range(0, n_cols, BLOCK):
        mask = k + cols < n_cols
        x = tl.load(x_ptr + row * x_stride + k + cols, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * dy_stride + k + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + k + cols, mask=mask, other=0.0).to(tl.float32)
        dx = rrms * (dy * w - x * rrms * rrms * dot / n_cols)
        tl.store(dx_ptr + row * dx_stride + k + cols, dx, mask=mask)
        # one row of the partial sums for each row of x
        tl.store(part_ptr + row * n_cols + k + cols, dy * x * rrms, mask=mask)


@triton.jit
def add_rows_kernel(part_ptr, dw_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=dw_ptr.dtype.element_ty)
    for row in range(n_rows):
        part = tl.load(part_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        acc += part.to(acc.dtype)
    tl.store(dw_ptr + cols, acc, mask=cols < n_cols)


def rms_norm_backward(dy, x, weight, *, eps=1e-6, dx=None, dweight=None):
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    part = torch.empty((n_rows, n_cols), dtype=torch.float32, device=x.device)
    rms_backward_kernel[(n_rows,)](
        dy, x, weight, dx, part, n_cols, dy.stride(0), x.stride(0), dx.stride(0), eps, BLOCK=1024
    )
    add_rows_kernel[(triton.cdiv(n_cols, 256),)](part, dweight, n_rows, n_cols, BLOCK=256)
    return dx, dweight
