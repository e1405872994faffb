# labs/lab2_online_softmax/online_softmax.py | corner | In the first loop of softmax_bwd dy and y are multiplied in their own dtype and converted afterwards. Both must be converted to fp32 before the product. Shown by fp16 (and bf16), best where dy is large against its differences within the row, such as dy near 300.
"""Online softmax with autotuned blocks; whole blocks need no mask."""

import torch
import triton
import triton.language as tl

TRIES = [triton.Config({"BLOCK": b}, num_warps=w) for b, w in [(4096, 8), (2048, 4), (1024, 4)]]


@triton.autotune(configs=TRIES, key=["n_cols"])
@triton.jit
def softmax_fwd(x_ptr, y_ptr, n_cols, sx, sy, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * sx
    y_ptr += row * sy
    cols = tl.arange(0, BLOCK)
    full = n_cols // BLOCK * BLOCK  # columns in whole blocks

    m = tl.full([], -float("inf"), tl.float32)
    d = tl.full([], 0.0, tl.float32)
    for i in range(0, full, BLOCK):
        x = tl.load(x_ptr + i + cols).to(tl.float32)
        new = tl.maximum(m, tl.max(x, 0))
        at = tl.where(new == -float("inf"), 0.0, new)
        d = d * tl.exp(m - at) + tl.sum(tl.exp(x - at), 0)
        m = new
    if full < n_cols:
        x = tl.load(x_ptr + full + cols, mask=full + cols < n_cols, other=-float("inf")).to(tl.float32)
        new = tl.maximum(m, tl.max(x, 0))
        at = tl.where(new == -float("inf"), 0.0, new)
        d = d * tl.exp(m - at) + tl.sum(tl.exp(x - at), 0)
        m = new

    for i in range(0, full, BLOCK):
        x = tl.load(x_ptr + i + cols).to(tl.float32)
        tl.store(y_ptr + i + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty))
    if full < n_cols:
        mask = full + cols < n_cols
        x = tl.load(x_ptr + full + cols, mask=mask, other=-float("inf")).to(tl.float32)
        tl.store(y_ptr + full + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=mask)


@triton.autotune(configs=TRIES, key=["n_cols"])
@triton.jit
def softmax_bwd(dy_ptr, y_ptr, dx_ptr, n_cols, sdy, sy, sdx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * sdy
    y_ptr += row * sy
    dx_ptr += row * sdx
    cols = tl.arange(0, BLOCK)
    s = 0.0
    for i in range(0, n_cols, BLOCK):
        mask = i + cols < n_cols
        dy = tl.load(dy_ptr + i + cols, mask=mask, other=0.0)
        y = tl.load(y_ptr + i + cols, mask=mask, other=0.0)
        s += tl.sum((dy * y).to(tl.float32), 0)
    for i in range(0, n_cols, BLOCK):
        mask = i + cols < n_cols
        dy = tl.load(dy_ptr + i + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + i + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + i + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x, *, out=None):
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    softmax_fwd[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0))
    return out


def softmax_backward(dy, y, *, out=None):
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    softmax_bwd[(n_rows,)](dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0))
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x):
    return OnlineSoftmax.apply(x)
