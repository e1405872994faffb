"""EXPECT WRONG/NONFINITE from rms_norm_backward, hint 6: S49 atomic adds to a dweight that holds anything"""

import torch
import triton
import triton.language as tl


@triton.jit
def rms_backward_kernel(dy_ptr, x_ptr, w_ptr, dx_ptr, dw_ptr, n_cols, dy_stride, x_stride, dx_stride, eps,
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
        dw = (dy * x * rrms).to(dw_ptr.dtype.element_ty)
        tl.atomic_add(dw_ptr + k + cols, dw, mask=mask)


def rms_norm_backward(dy, x, weight, *, eps=1e-6, dx=None, dweight=None):
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    rms_backward_kernel[(n_rows,)](
        dy, x, weight, dx, dweight, n_cols, dy.stride(0), x.stride(0), dx.stride(0), eps, BLOCK=1024
    )
    return dx, dweight
