# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_backward_kernel, last loop: `g * p - dot` subtracts the row's sum itself, without the factor y; the bracket of y * (dy - s) was opened wrongly; every element of dx is wrong in softmax_backward and in the gradient of softmax, for every size and dtype but a single column, where y is 1; it should be `g * p - dot * p`, that is p * (g - dot)
"""Online softmax, one program a row, and its gradient."""

import torch
import triton
import triton.language as tl

WIDEST = 16384


@triton.jit
def fetch(row_ptr, cols, n_cols, PAST_END: tl.constexpr):
    """Columns `cols` of a row in fp32, PAST_END behind its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=PAST_END).to(tl.float32)


@triton.jit
def put(row_ptr, cols, n_cols, values):
    """Store columns `cols` of a row in its own dtype."""
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lane = tl.arange(0, BLOCK)
    # A start far below every number that may occur, but finite: so no difference is -inf - (-inf).
    m = -3.0e38
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = fetch(x_ptr, start + lane, n_cols, -float("inf"))
        raised = tl.maximum(m, tl.max(x, axis=0))
        d = d * tl.exp(m - raised) + tl.sum(tl.exp(x - raised), axis=0)
        m = raised
    for start in range(0, n_cols, BLOCK):
        x = fetch(x_ptr, start + lane, n_cols, -float("inf"))
        put(y_ptr, start + lane, n_cols, tl.exp(x - m) / d)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lane = tl.arange(0, BLOCK)
    dot = 0.0
    for start in range(0, n_cols, BLOCK):
        g = fetch(dy_ptr, start + lane, n_cols, 0.0)
        p = fetch(y_ptr, start + lane, n_cols, 0.0)
        dot += tl.sum(g * p, axis=0)
    for start in range(0, n_cols, BLOCK):
        g = fetch(dy_ptr, start + lane, n_cols, 0.0)
        p = fetch(y_ptr, start + lane, n_cols, 0.0)
        put(dx_ptr, start + lane, n_cols, g * p - dot)


def width_and_warps(n_cols: int, columns_per_warp: int, most_warps: int):
    """Width of a block, and a power of two of warps for it."""
    width = min(triton.next_power_of_2(n_cols), WIDEST)
    return width, max(1, min(width // columns_per_warp, most_warps))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    width, warps = width_and_warps(x.shape[1], 1024, 8)
    online_softmax_kernel[(x.shape[0],)](
        x, out, x.shape[1], x.stride(0), out.stride(0), BLOCK=width, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input of softmax, from dy and y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    width, warps = width_and_warps(dy.shape[1], 512, 32)
    softmax_backward_kernel[(dy.shape[0],)](
        dy, y, out, dy.shape[1], dy.stride(0), y.stride(0), out.stride(0), BLOCK=width, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """y and its gradient."""

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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
