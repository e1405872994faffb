# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) softmax_backward_kernel, first loop, `tl.sum(grad * prob, axis=0)`: grad and prob are multiplied (and in fp16 added) in the dtype in which they were loaded, so the row's sum has few digits; both need `.to(tl.float32)` first, as in the second loop. Shows in fp16 and bf16, most where dy is near the sum; fp32 is right. (2) OnlineSoftmax.backward: `dy` is made contiguous only where one of its strides is 0, so a transposed gradient or one with every second column of a wider matrix reaches the kernel, which takes columns as contiguous and reads other elements; it should be `dy.contiguous()` always (or wherever dy.stride(1) is not 1). Shows in the gradient of softmax() with such a dy. The forward pass is right.
import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    best = -float("inf")
    norm = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        score = tl.load(x_row_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        block_best = tl.max(score, axis=0)
        next_best = tl.maximum(best, block_best)
        safe = tl.where(next_best == -float("inf"), 0.0, next_best)
        norm = norm * tl.exp(best - safe) + tl.sum(tl.exp(score - safe), axis=0)
        best = next_best
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        score = tl.load(x_row_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        prob = tl.exp(score - best) / norm
        tl.store(y_row_ptr + offs, prob.to(y_ptr.dtype.element_ty), mask=offs < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    inner = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        grad = tl.load(dy_row_ptr + offs, mask=offs < n_cols, other=0.0)
        prob = tl.load(y_row_ptr + offs, mask=offs < n_cols, other=0.0)
        inner += tl.sum(grad * prob, axis=0)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        grad = tl.load(dy_row_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        prob = tl.load(y_row_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        dx = prob * (grad - inner)
        tl.store(dx_row_ptr + offs, dx.to(dx_ptr.dtype.element_ty), mask=offs < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def new_matrix(like):
    return torch.empty(like.shape, dtype=like.dtype, device=like.device)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = new_matrix(x)
    n_rows, n_cols = x.size()
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = new_matrix(dy)
    n_rows, n_cols = dy.size()
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
    )
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
        if 0 in dy.stride():
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
