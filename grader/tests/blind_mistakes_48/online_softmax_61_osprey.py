# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `forward_rows_kernel`: `scale = tl.log(total)` must be `tl.log2(total)`, because it is subtracted from an exponent of 2 in `tl.exp2((x - peak) * LOG2E - scale)`. Each row sums to total ** (1 - ln 2), more than 1; right only where total is 1 (one column, or one value that towers over the row).
"""Online softmax with a fixed number of programs that take turns at the rows, its gradient, and both together."""

import torch
import triton
import triton.language as tl

MAX_BLOCK = 8192
PROGRAMS_PER_SM = 8
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def forward_rows_kernel(
    src_ptr, dst_ptr, n_rows, n_cols, turns, src_stride, dst_stride, BLOCK: tl.constexpr
):
    """Softmax of rows pid, pid + programs, pid + 2 * programs and so on."""
    pid = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    for turn in range(0, turns):
        row = pid + turn * tl.num_programs(axis=0)
        if row < n_rows:
            src = src_ptr + row * src_stride
            dst = dst_ptr + row * dst_stride
            peak = -float("inf")
            total = 0.0
            for start in range(0, n_cols, BLOCK):
                cols = lanes + start
                x = tl.load(src + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
                x = x.to(tl.float32)
                higher = tl.maximum(tl.max(x, axis=0), peak)
                shift = tl.where(higher == -float("inf"), 0.0, higher)
                terms = tl.exp2((x - shift) * LOG2E)
                total = total * tl.exp2((peak - shift) * LOG2E) + tl.sum(terms, axis=0)
                peak = higher
            # The division becomes a subtraction in the exponent: exp(x - peak) / total.
            scale = tl.log(total)
            for start in range(0, n_cols, BLOCK):
                cols = lanes + start
                inside = cols < n_cols
                x = tl.load(src + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first")
                y = tl.exp2((x.to(tl.float32) - peak) * LOG2E - scale)
                tl.store(dst + cols, y.to(dst_ptr.dtype.element_ty), mask=inside)


@triton.jit
def backward_rows_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, turns, dy_stride, y_stride, dx_stride, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum of y * dy) of rows pid, pid + programs and so on."""
    pid = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    for turn in range(0, turns):
        row = pid + turn * tl.num_programs(axis=0)
        if row < n_rows:
            dy_row = dy_ptr + row * dy_stride
            y_row = y_ptr + row * y_stride
            dx_row = dx_ptr + row * dx_stride
            dot = 0.0
            for start in range(0, n_cols, BLOCK):
                cols = lanes + start
                dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
                y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
                dot += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)
            for start in range(0, n_cols, BLOCK):
                cols = lanes + start
                inside = cols < n_cols
                dy = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_first")
                y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_first")
                dx = y.to(tl.float32) * (dy.to(tl.float32) - dot)
                tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def plan(t: torch.Tensor):
    """Number of programs, and of the turns that the first of them takes, for the rows of t."""
    sms = torch.cuda.get_device_properties(t.device).multi_processor_count if t.is_cuda else 4
    programs = min(t.shape[0], sms * PROGRAMS_PER_SM)
    return programs, triton.cdiv(t.shape[0], programs)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), with any distance between rows."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    block = min(triton.next_power_of_2(n_cols), MAX_BLOCK)
    warps = 8 if block >= 4096 else 4 if block >= 1024 else 1
    programs, turns = plan(x)
    forward_rows_kernel[(programs,)](
        x, out, n_rows, n_cols, turns, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of the softmax, from the incoming gradient and the result y."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=y.device, dtype=y.dtype)
    block = min(triton.next_power_of_2(n_cols), MAX_BLOCK)
    warps = 16 if block >= 8192 else 8 if block >= 2048 else 4
    programs, turns = plan(y)
    backward_rows_kernel[(programs,)](
        dy, y, out, n_rows, n_cols, turns, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """The two functions as one that autograd knows."""

    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad):
        (result,) = ctx.saved_tensors
        return softmax_backward(grad.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension."""
    return OnlineSoftmax.apply(x)
