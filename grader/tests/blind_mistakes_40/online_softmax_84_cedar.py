# labs/lab2_online_softmax/online_softmax.py | corner | In `softmax_backward_kernel`, second sweep of long rows from the end: `last = n_cols // BLOCK * BLOCK` should be `(n_cols - 1) // BLOCK * BLOCK`. Where n_cols is a multiple of BLOCK = 8192 and longer than one block (24576, 32768, 131072), the first turn starts at n_cols and stores nothing, and block 0 of each row is never written; all other widths are right.
"""Online softmax over rows, forward and backward; long rows are swept back from their end the second time."""

import torch
import triton
import triton.language as tl

BLOCK_MAX = 8192
LOG2E = tl.constexpr(1.44269504088896340736)
LOWEST = tl.constexpr(-3.4028234663852886e38)  # no finite fp32 number is below


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i. The maximum starts at the lowest number, so that no difference is NaN."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)
    m = LOWEST
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = lane < n_cols - start
        x = tl.load(
            x_row_ptr + start + lane, mask=mask, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        top = tl.maximum(m, tl.max(x, axis=0))
        d = d * tl.exp2((m - top) * LOG2E) + tl.sum(tl.exp2((x - top) * LOG2E), axis=0)
        m = top
    share = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        mask = lane < n_cols - start
        x = tl.load(
            x_row_ptr + start + lane, mask=mask, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = tl.exp2((x - m) * LOG2E) * share
        tl.store(y_row_ptr + start + lane, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def load_pair(dy_row_ptr, y_row_ptr, cols, n_cols):
    """dy and y of one block in fp32, with 0 outside of the row."""
    mask = cols < n_cols
    dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    return dy, y


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
    SHORT: tl.constexpr,  # the row is not longer than BLOCK
):
    """Program i owns row i. A short row stays in registers; of a long one the end is still in the cache."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)
    if SHORT:
        dy, y = load_pair(dy_row_ptr, y_row_ptr, lane, n_cols)
        s = tl.sum(dy * y, axis=0)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + lane, dx.to(dx_ptr.dtype.element_ty), mask=lane < n_cols)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            dy, y = load_pair(dy_row_ptr, y_row_ptr, start + lane, n_cols)
            s += tl.sum(dy * y, axis=0)
        last = n_cols // BLOCK * BLOCK
        for done in range(0, n_cols, BLOCK):
            cols = last - done + lane
            dy, y = load_pair(dy_row_ptr, y_row_ptr, cols, n_cols)
            dx = y * (dy - s)
            tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), BLOCK_MAX)
    warps = max(1, min(4, block // 1024))
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), BLOCK_MAX)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        SHORT=n_cols <= block,
        num_warps=max(4, min(16, block // 512)),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """The two functions above for autograd."""

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
