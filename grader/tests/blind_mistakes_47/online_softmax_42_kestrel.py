# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `shares`, used by `gradient_kernel` with FROM_INPUT=True (OnlineSoftmax.backward), `y = tl.exp(x - top) * norm` multiplies by the sum that `forward_kernel` stored (`tl.store(stats_ptr + 2 * row + 1, norm)`); it should divide by it, or the forward kernel should store 1 / norm. dx of the differentiable softmax is wrong in all cases but rows whose sum is 1; softmax_forward and softmax_backward are right.
"""Online softmax whose gradient is computed from the input and two numbers for each row."""

import torch
import triton
import triton.language as tl

WIDEST = 8192


@triton.jit
def forward_kernel(x_ptr, y_ptr, stats_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Row i of y from row i of x. Where stats_ptr is given, the maximum and the sum of the row go there."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    top = -float("inf")
    norm = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        new_top = tl.maximum(top, tl.max(x, axis=0))
        base = tl.where(new_top == -float("inf"), 0.0, new_top)
        norm = norm * tl.exp(top - base) + tl.sum(tl.exp(x - base), axis=0)
        top = new_top
    if stats_ptr is not None:
        tl.store(stats_ptr + 2 * row, top)
        tl.store(stats_ptr + 2 * row + 1, norm)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top) / norm
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def shares(src_row, cols, n_cols, top, norm, FROM_INPUT: tl.constexpr):
    """Columns of y in fp32, 0 past the end; src_row is a row of x, or of y itself."""
    if FROM_INPUT:
        x = tl.load(src_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top) * norm
    else:
        y = tl.load(src_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    return y


@triton.jit
def gradient_kernel(
    dy_ptr,
    src_ptr,
    stats_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_src,
    stride_dx,
    FROM_INPUT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Row i of dx = y * (dy - sum(y * dy)), where src is x with its stats, or y."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    src_row = src_ptr + row * stride_src
    dx_row = dx_ptr + row * stride_dx
    top = 0.0
    norm = 1.0
    if FROM_INPUT:
        top = tl.load(stats_ptr + 2 * row)
        norm = tl.load(stats_ptr + 2 * row + 1)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = shares(src_row, cols, n_cols, top, norm, FROM_INPUT)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = shares(src_row, cols, n_cols, top, norm, FROM_INPUT)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def launch_options(n_cols: int):
    """Width of a block and warps of a program."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    return {"BLOCK": block, "num_warps": 16 if block == WIDEST else 8 if block >= 2048 else 4}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    forward_kernel[(n_rows,)](
        x, out, None, n_cols, x.stride(0), out.stride(0), **launch_options(n_cols)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    gradient_kernel[(n_rows,)](
        dy,
        y,
        None,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        FROM_INPUT=False,
        **launch_options(n_cols),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Keeps x, which is there anyway, and two numbers for each row."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        n_rows, n_cols = x.shape
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        stats = torch.empty((n_rows, 2), dtype=torch.float32, device=x.device)
        forward_kernel[(n_rows,)](
            x, y, stats, n_cols, x.stride(0), y.stride(0), **launch_options(n_cols)
        )
        ctx.save_for_backward(x, stats)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        x, stats = ctx.saved_tensors
        n_rows, n_cols = x.shape
        dy = dy.contiguous()
        dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        gradient_kernel[(n_rows,)](
            dy,
            x,
            stats,
            dx,
            n_cols,
            dy.stride(0),
            x.stride(0),
            dx.stride(0),
            FROM_INPUT=True,
            **launch_options(n_cols),
        )
        return dx


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
