# labs/lab2_online_softmax/online_softmax.py | right | Unusual: forward rescales d only in an `if top > m:`, with exp2 of (x - m) * log2(e); backward takes BLOCK and WHOLE from `triton.heuristics`, sums products for each lane and reduces once, with two blocks in a turn by `tl.static_range(2)`; short rows stay in registers; `once_differentiable`.
"""Online softmax with sums for each lane, two blocks in a turn of the loop; gradient and autograd function."""

import torch
import triton
import triton.language as tl

WIDEST = 4096
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y of row i by program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        top = tl.max(x, axis=0)
        if top > m:  # else m stays, and with it the scale of d
            d *= tl.exp2((m - top) * LOG2E)
            m = top
        d += tl.sum(tl.where(x == -float("inf"), 0.0, tl.exp2((x - m) * LOG2E)), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp2((x.to(tl.float32) - m) * LOG2E) / d
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.heuristics(
    {
        "BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), WIDEST),
        "WHOLE": lambda args: args["n_cols"] <= WIDEST,
    }
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
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """dx of row i by program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)
    if WHOLE:
        # The row stays in registers.
        mask = lanes < n_cols
        y = tl.load(y_ptr + lanes, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + lanes, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(y * dy, axis=0))
        tl.store(dx_ptr + lanes, dx.to(dx_ptr.dtype.element_ty), mask=mask)
    else:
        sums = tl.zeros([BLOCK], dtype=tl.float32)
        for start in range(0, n_cols, 2 * BLOCK):
            for turn in tl.static_range(2):
                cols = start + turn * BLOCK + lanes
                mask = cols < n_cols
                y = tl.load(y_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
                dy = tl.load(dy_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
                sums += y.to(tl.float32) * dy.to(tl.float32)
        s = tl.sum(sums, axis=0)
        for start in range(0, n_cols, 2 * BLOCK):
            for turn in tl.static_range(2):
                cols = start + turn * BLOCK + lanes
                mask = cols < n_cols
                y = tl.load(y_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first")
                dy = tl.load(dy_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first")
                dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
                tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def contiguous_like(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), into `out` where one is given."""
    out = contiguous_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), 2 * WIDEST)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4 if block > 1024 else 2
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y, into `out` where one is given."""
    out = contiguous_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), num_warps=8 if n_cols > 1024 else 4
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Forward and backward for autograd."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
