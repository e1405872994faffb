# labs/lab2_online_softmax/online_softmax.py | corner | softmax_row, both the padding of the load and the start of m: -65504.0 (the lowest fp16) in place of -inf is not below all values of a row: where a row lies near -65504 the lanes past the end count in d, and fp32 rows far below it underflow to 0 / 0; it must be -inf (with a finite shift for blocks of only -inf).
import torch
import triton
import triton.language as tl


@triton.jit
def load_row(ptr, cols, n_cols, fill):
    return tl.load(ptr + cols, mask=cols < n_cols, other=fill).to(tl.float32)


@triton.jit
def softmax_row(x_ptr, y_ptr, n_cols, sx, sy, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    xs, ys = x_ptr + row * sx, y_ptr + row * sy
    lanes = tl.arange(0, BLOCK)
    # a finite start, so -inf minus -inf never happens
    m = -65504.0
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = load_row(xs, start + lanes, n_cols, -65504.0)
        top = tl.maximum(m, tl.max(x, 0))
        d = d * tl.exp(m - top) + tl.sum(tl.exp(x - top), 0)
        m = top
    inv = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        x = load_row(xs, start + lanes, n_cols, 0.0)
        y = tl.exp(x - m) * inv
        tl.store(ys + start + lanes, y.to(y_ptr.dtype.element_ty), mask=start + lanes < n_cols)


@triton.jit
def softmax_row_backward(dy_ptr, y_ptr, dx_ptr, n_cols, sdy, sy, sdx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy = load_row(dy_ptr + row * sdy, start + lanes, n_cols, 0.0)
        y = load_row(y_ptr + row * sy, start + lanes, n_cols, 0.0)
        s += tl.sum(dy * y)
    for start in range(0, n_cols, BLOCK):
        dy = load_row(dy_ptr + row * sdy, start + lanes, n_cols, 0.0)
        y = load_row(y_ptr + row * sy, start + lanes, n_cols, 0.0)
        tl.store(dx_ptr + row * sdx + start + lanes, ((dy - s) * y).to(dx_ptr.dtype.element_ty), mask=start + lanes < n_cols)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    BLOCK = min(triton.next_power_of_2(n_cols), 4096)
    softmax_row[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=BLOCK)
    return out


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    BLOCK = min(triton.next_power_of_2(n_cols), 4096)
    softmax_row_backward[(n_rows,)](dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=BLOCK)
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


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
