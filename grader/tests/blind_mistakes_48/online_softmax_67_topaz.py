# labs/lab2_online_softmax/online_softmax.py | error | In `read`, `tl.load(row_ptr + cols, mask=inside, other=0.0)` has `inside = None` where WHOLE is true, and Triton raises "`other` cannot be provided without `mask`"; there should be no `other` in that case. The backward kernel does not compile where n_cols is a multiple of the block (1, 2, 128, 4096, 24576, 131072); other widths are right.
"""Online softmax with its gradient; heuristics choose the block, and whether a row consists of whole blocks."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.heuristics({"BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), 4096)})
@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y of one row, by the online recurrence to base 2."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    top = -float("inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        new_top = tl.maximum(top, tl.max(x, axis=0))
        shift = tl.where(new_top == -float("inf"), 0.0, new_top)
        total = total * tl.exp2((top - shift) * LOG2E) + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
        top = new_top
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp2((x - top) * LOG2E) / total
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def read(row_ptr, cols, n_cols, WHOLE: tl.constexpr):
    """Columns of a row in fp32, 0 behind its end; rows of whole blocks need no mask."""
    inside = None if WHOLE else cols < n_cols
    return tl.load(row_ptr + cols, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def write(row_ptr, cols, n_cols, values, WHOLE: tl.constexpr):
    """Store columns of a row in its dtype."""
    inside = None if WHOLE else cols < n_cols
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=inside)


@triton.heuristics(
    {
        "BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), 4096),
        "WHOLE": lambda args: args["n_cols"] % args["BLOCK"] == 0,
    }
)
@triton.jit
def backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """dx of one row: the sum of dy * y first, over all blocks."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    gathered = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        gathered += read(dy_row, cols, n_cols, WHOLE) * read(y_row, cols, n_cols, WHOLE)
    s = tl.sum(gathered, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dx = read(y_row, cols, n_cols, WHOLE) * (read(dy_row, cols, n_cols, WHOLE) - s)
        write(dx_row, cols, n_cols, dx, WHOLE)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    forward_kernel[(x.shape[0],)](x, out, x.shape[1], x.stride(0), out.stride(0), num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    backward_kernel[(y.shape[0],)](
        dy, y, out, y.shape[1], dy.stride(0), y.stride(0), out.stride(0), num_warps=8
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
