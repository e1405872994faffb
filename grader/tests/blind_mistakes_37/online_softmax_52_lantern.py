# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | OnlineSoftmax.forward keeps the input: `ctx.save_for_backward(x)`, and OnlineSoftmax.backward passes it to softmax_backward in the place of the forward result, so the gradient of softmax(x) is x * (dy - sum of x * dy). It should save and pass y. Every gradient of softmax is wrong (NaN where x has -inf); softmax_forward and softmax_backward, called by themselves, are right, and so is the value of softmax.
"""Row softmax in Triton: each lane runs its own online recurrence, and the lanes are merged after the last block."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """One program for each row. Lane k sees the columns k, k + BLOCK, k + 2 * BLOCK and so on."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    source = x_ptr + row * stride_x + lane
    target = y_ptr + row * stride_y + lane

    lane_max = tl.full([BLOCK], -float("inf"), tl.float32)
    lane_sum = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        x = tl.load(source + start, mask=start + lane < n_cols, other=-float("inf")).to(tl.float32)
        new_max = tl.maximum(lane_max, x)
        # A lane may have seen nothing but -inf: any finite shift will do there.
        shift = tl.where(new_max == -float("inf"), 0.0, new_max)
        lane_sum = lane_sum * tl.exp(lane_max - shift) + tl.exp(x - shift)
        lane_max = new_max

    top = tl.max(lane_max, axis=0)
    total = tl.sum(lane_sum * tl.exp(lane_max - top), axis=0)

    for start in range(0, n_cols, BLOCK):
        inside = start + lane < n_cols
        x = tl.load(source + start, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top) / total
        tl.store(target + start, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """One program for each row: a sweep for the inner product, and a sweep for dx."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    dy_row = dy_ptr + row * stride_dy + lane
    y_row = y_ptr + row * stride_y + lane
    dx_row = dx_ptr + row * stride_dx + lane

    products = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        inside = start + lane < n_cols
        g = tl.load(dy_row + start, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        p = tl.load(y_row + start, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        products += g * p
    inner = tl.sum(products, axis=0)

    for start in range(0, n_cols, BLOCK):
        inside = start + lane < n_cols
        g = tl.load(dy_row + start, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        p = tl.load(y_row + start, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(dx_row + start, (p * (g - inner)).to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=clamp(block // 512, 1, 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 16),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """The two functions above, tied together for autograd."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return softmax_forward(x)

    @staticmethod
    def backward(ctx, dy):
        saved = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), saved)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
