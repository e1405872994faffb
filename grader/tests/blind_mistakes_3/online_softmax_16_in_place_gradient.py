# labs/lab2_online_softmax/online_softmax.py | contract | OnlineSoftmax.backward passes out=dy: contiguous() is dy itself where it is contiguous already, so the incoming gradient, an input, is overwritten with dx; a new tensor must be used, without out=.
import torch
import triton
import triton.language as tl


@triton.jit
def read(ptr, cols, n_cols, fill):
    return tl.load(ptr + cols, mask=cols < n_cols, other=fill).to(tl.float32)


@triton.jit
def rowwise_softmax(x_ptr, y_ptr, n_cols, sx, sy, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    xs, ys = x_ptr + row * sx, y_ptr + row * sy
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = read(xs, start + lanes, n_cols, -float("inf"))
        top = tl.maximum(m, tl.max(x, 0))
        shift = tl.where(top == -float("inf"), 0.0, top)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), 0)
        m = top
    inv = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        x = read(xs, start + lanes, n_cols, 0.0)
        y = tl.exp(x - m) * inv
        tl.store(ys + start + lanes, y.to(y_ptr.dtype.element_ty), mask=start + lanes < n_cols)


@triton.jit
def rowwise_softmax_backward(dy_ptr, y_ptr, dx_ptr, n_cols, sdy, sy, sdx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    weighted = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        dy = read(dy_ptr + row * sdy, start + lanes, n_cols, 0.0)
        y = read(y_ptr + row * sy, start + lanes, n_cols, 0.0)
        weighted += dy * y
    s = tl.sum(weighted, axis=0)
    for start in range(0, n_cols, BLOCK):
        dy = read(dy_ptr + row * sdy, start + lanes, n_cols, 0.0)
        y = read(y_ptr + row * sy, start + lanes, n_cols, 0.0)
        tl.store(dx_ptr + row * sdx + start + lanes, ((dy - s) * y).to(dx_ptr.dtype.element_ty), mask=start + lanes < n_cols)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    BLOCK = min(triton.next_power_of_2(n_cols), 8192)
    rowwise_softmax[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=BLOCK)
    return out


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    BLOCK = min(triton.next_power_of_2(n_cols), 8192)
    rowwise_softmax_backward[(n_rows,)](dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=BLOCK)
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
        dy = dy.contiguous()
        # dy is used up here, so dx may take its place
        return softmax_backward(dy, y, out=dy)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
