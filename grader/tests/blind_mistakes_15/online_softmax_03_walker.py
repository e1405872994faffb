# labs/lab2_online_softmax/online_softmax.py | corner | In the first loop of online_softmax_kernel m is overwritten with the new maximum before the old sum is rescaled, so the factor exp(m - shift) is always 1; rows of more than one block (above 2048 columns) get a wrong d when the maximum rises. The old m must be used in the factor and replaced only afterwards.
"""Online softmax; the pointers walk along the row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, BLOCK)

    m = -float("inf")
    d = 0.0
    src = x_ptr + row * stride_x + lane
    done = 0
    while done < n_cols:
        x = tl.load(src, mask=lane < n_cols - done, other=-float("inf")).to(tl.float32)
        m = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m == -float("inf"), 0.0, m)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        src += BLOCK
        done += BLOCK

    src = x_ptr + row * stride_x + lane
    dst = y_ptr + row * stride_y + lane
    done = 0
    while done < n_cols:
        keep = lane < n_cols - done
        x = tl.load(src, mask=keep, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(dst, y.to(y_ptr.dtype.element_ty), mask=keep)
        src += BLOCK
        dst += BLOCK
        done += BLOCK


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, BLOCK)

    s = 0.0
    dy_walk = dy_ptr + row * stride_dy + lane
    y_walk = y_ptr + row * stride_y + lane
    done = 0
    while done < n_cols:
        keep = lane < n_cols - done
        g = tl.load(dy_walk, mask=keep, other=0.0).to(tl.float32)
        y = tl.load(y_walk, mask=keep, other=0.0).to(tl.float32)
        s += tl.sum(g * y, axis=0)
        dy_walk += BLOCK
        y_walk += BLOCK
        done += BLOCK

    dy_walk = dy_ptr + row * stride_dy + lane
    y_walk = y_ptr + row * stride_y + lane
    dx_walk = dx_ptr + row * stride_dx + lane
    done = 0
    while done < n_cols:
        keep = lane < n_cols - done
        g = tl.load(dy_walk, mask=keep, other=0.0).to(tl.float32)
        y = tl.load(y_walk, mask=keep, other=0.0).to(tl.float32)
        tl.store(dx_walk, (y * (g - s)).to(dx_ptr.dtype.element_ty), mask=keep)
        dy_walk += BLOCK
        y_walk += BLOCK
        dx_walk += BLOCK
        done += BLOCK


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows = x.size(0)
    n_cols = x.size(1)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=min(FORWARD_BLOCK, triton.next_power_of_2(n_cols)),
        num_warps=4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows = dy.size(0)
    n_cols = dy.size(1)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=min(BACKWARD_BLOCK, triton.next_power_of_2(n_cols)),
        num_warps=4,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Forward and backward kernel together."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        if not dy.is_contiguous():
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
