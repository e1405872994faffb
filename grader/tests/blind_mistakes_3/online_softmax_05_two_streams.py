# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | merge: the sum of the second stream is multiplied by the factor of the first one, exp(m1 - m); it must be d2 * exp(m2 - m).
import torch
import triton
import triton.language as tl

WIDTH = 4096


@triton.jit
def merge(m1, d1, m2, d2):
    """two parts of a row, each with its maximum and its sum, become one"""
    m = tl.maximum(m1, m2)
    base = tl.where(m == -float("inf"), 0.0, m)
    d = d1 * tl.exp(m1 - base) + d2 * tl.exp(m1 - base)
    return m, d


@triton.jit
def part(x):
    m = tl.max(x, axis=0)
    base = tl.where(m == -float("inf"), 0.0, m)
    return m, tl.sum(tl.exp(x - base), axis=0)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr = x_ptr + row * stride_x
    y_ptr = y_ptr + row * stride_y
    offs = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, 2 * BLOCK):
        # two loads in flight: the left and the right half of a piece of the row
        left = start + offs
        right = left + BLOCK
        xl = tl.load(x_ptr + left, mask=left < n_cols, other=-float("inf")).to(tl.float32)
        xr = tl.load(x_ptr + right, mask=right < n_cols, other=-float("inf")).to(tl.float32)
        ml, dl = part(xl)
        mr, dr = part(xr)
        mb, db = merge(ml, dl, mr, dr)
        m, d = merge(m, d, mb, db)
    for start in range(0, n_cols, BLOCK):
        cols = start + offs
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_ptr + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols).to(tl.float32)
        tl.store(dx_ptr + row * stride_dx + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def block_of(n_cols: int) -> int:
    # half of the row, at least one number
    return min(WIDTH, triton.next_power_of_2(triton.cdiv(n_cols, 2)))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block_of(n_cols))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block_of(n_cols)
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        (result,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
