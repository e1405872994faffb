# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward_kernel has `BLOCK` in place of `BLOCK: tl.constexpr`, so tl.arange(0, BLOCK) gets a value that is no constexpr and Triton refuses to compile it (the interpreter does not notice).
import torch
import triton
import triton.language as tl


@triton.jit
def columns(start, BLOCK: tl.constexpr):
    """Numbers of the columns of one block."""
    return start + tl.arange(0, BLOCK)


@triton.jit
def read(row_ptr, cols, n_cols, other):
    """Columns of a row as fp32."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def fold(m, d, x):
    """m and d after one more block."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    return m_new, d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)


@triton.jit
def write(row_ptr, cols, n_cols, values):
    """Columns of a row, rounded to its dtype."""
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    m, d = -float("inf"), 0.0
    for start in range(0, n_cols, BLOCK):
        m, d = fold(m, d, read(x_ptr + row * stride_x, columns(start, BLOCK), n_cols, -float("inf")))
    for start in range(0, n_cols, BLOCK):
        cols = columns(start, BLOCK)
        x = read(x_ptr + row * stride_x, cols, n_cols, -float("inf"))
        write(y_ptr + row * stride_y, cols, n_cols, tl.exp(x - m) / d)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK):
    row = tl.program_id(0).to(tl.int64)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = columns(start, BLOCK)
        dy = read(dy_ptr + row * stride_dy, cols, n_cols, 0.0)
        s += tl.sum(dy * read(y_ptr + row * stride_y, cols, n_cols, 0.0), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = columns(start, BLOCK)
        dy = read(dy_ptr + row * stride_dy, cols, n_cols, 0.0)
        y = read(y_ptr + row * stride_y, cols, n_cols, 0.0)
        write(dx_ptr + row * stride_dx, cols, n_cols, y * (dy - s))


def block_for(n_cols: int) -> int:
    return min(triton.next_power_of_2(n_cols), 16384)


def softmax_forward(x, *, out=None):
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block_for(n_cols))
    return out


def softmax_backward(dy, y, *, out=None):
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    launch = softmax_backward_kernel[(n_rows,)]
    launch(dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block_for(n_cols), num_warps=16)
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
