# labs/lab2_online_softmax/online_softmax.py | contract | softmax_forward / new_rows, `torch.empty_strided((n_rows, n_cols), (pitch, 1), ...)`: where no out is given, rows are allocated a multiple of 16 elements apart, so the returned matrix (also that of softmax()) is not contiguous if n_cols is no multiple of 16 and there is more than one row; the numbers are right; the README asks for a new contiguous matrix: torch.empty((n_rows, n_cols), ...) or torch.empty_like(x)
"""Softmax over rows: rows that fit one block stay in registers, longer ones take the online recurrence."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384
ROW_ALIGNMENT = 16  # elements


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    FITS: tl.constexpr,  # whether one block holds the row
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    cols = tl.arange(0, BLOCK)
    if FITS:
        inside = cols < n_cols
        x = tl.load(x_ptr + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first")
        x = x.to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(
            y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first"
        )
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            inside = cols < n_cols - start
            x = tl.load(
                x_ptr + start + cols, mask=inside, other=-float("inf"), eviction_policy="evict_last"
            ).to(tl.float32)
            raised = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(raised == -float("inf"), 0.0, raised)
            d *= tl.exp(m - shift)
            d += tl.sum(tl.exp(x - shift), axis=0)
            m = raised
        for start in range(0, n_cols, BLOCK):
            inside = cols < n_cols - start
            x = tl.load(
                x_ptr + start + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first"
            ).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(
                y_ptr + start + cols,
                y.to(y_ptr.dtype.element_ty),
                mask=inside,
                eviction_policy="evict_first",
            )


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    FITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    cols = tl.arange(0, BLOCK)
    if FITS:
        inside = cols < n_cols
        dy = tl.load(dy_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(y * dy, axis=0))
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            inside = cols < n_cols - start
            dy = tl.load(
                dy_ptr + start + cols, mask=inside, other=0.0, eviction_policy="evict_last"
            ).to(tl.float32)
            y = tl.load(
                y_ptr + start + cols, mask=inside, other=0.0, eviction_policy="evict_last"
            ).to(tl.float32)
            s += tl.sum(y * dy, axis=0)
        for start in range(0, n_cols, BLOCK):
            inside = cols < n_cols - start
            dy = tl.load(dy_ptr + start + cols, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + start + cols, mask=inside, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_ptr + start + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def new_rows(x: torch.Tensor) -> torch.Tensor:
    """A matrix of the shape and dtype of x, each row of which starts at a vector boundary."""
    n_rows, n_cols = x.shape
    pitch = triton.cdiv(n_cols, ROW_ALIGNMENT) * ROW_ALIGNMENT
    return torch.empty_strided((n_rows, n_cols), (pitch, 1), dtype=x.dtype, device=x.device)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = new_rows(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        FITS=n_cols <= block,
        BLOCK=block,
        num_warps=8 if block > 8192 else clamp(block // 1024, 1, 4),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        FITS=n_cols <= block,
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 32),
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
