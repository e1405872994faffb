# labs/lab2_online_softmax/online_softmax.py | error | In `persistent_softmax_kernel`, second loop of the `else` branch, `tl.load(..., cache_modifier=".cs")`: ".cs" is permitted for `tl.store` only; a load takes "", ".ca", ".cg" or ".cv" (here e.g. `eviction_policy="evict_first"`). ValueError "Cache modifier .cs not supported" when compiled, for all rows longer than one block (more than 8192 columns); shorter rows take the branch FITS and are right.
"""Softmax with persistent programs: a row that fits one block is read once, a longer one in two sweeps."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192
PROGRAMS = 2112  # 16 for each of 132 multiprocessors


@triton.heuristics({"FITS": lambda args: args["n_cols"] <= args["BLOCK"]})
@triton.jit
def persistent_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
    FITS: tl.constexpr,  # the row is one block
):
    """Program i owns the rows i, i + number of programs, and so on."""
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        if FITS:
            inside = lanes < n_cols
            x = tl.load(x_row + lanes, mask=inside, other=-float("inf"), eviction_policy="evict_first").to(tl.float32)
            e = tl.exp2((x - tl.max(x, axis=0)) * LOG2E)
            y = e / tl.sum(e, axis=0)
            tl.store(y_row + lanes, y.to(y_ptr.dtype.element_ty), mask=inside, cache_modifier=".cs")
        else:
            m = -float("inf")
            d = 0.0
            for start in range(0, n_cols, BLOCK):
                cols = start + lanes
                x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
                x = x.to(tl.float32)
                m_new = tl.maximum(m, tl.max(x, axis=0))
                shift = tl.where(m_new == -float("inf"), 0.0, m_new)
                d = d * tl.exp2((m - shift) * LOG2E) + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
                m = m_new
            # This is the last use of x, and y is not read again: both are streams.
            for start in range(0, n_cols, BLOCK):
                cols = start + lanes
                x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), cache_modifier=".cs")
                y = tl.exp2((x.to(tl.float32) - m) * LOG2E) / d
                tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols, cache_modifier=".cs")
        row += tl.num_programs(axis=0)


@triton.jit
def load_pair(dy_row, y_row, cols, n_cols, EVICT: tl.constexpr):
    """Columns of dy and of y in fp32, 0 past the end of the row."""
    dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy=EVICT).to(tl.float32)
    y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy=EVICT).to(tl.float32)
    return dy, y


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy, y = load_pair(dy_row, y_row, start + lanes, n_cols, "evict_last")
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy, y = load_pair(dy_row, y_row, cols, n_cols, "evict_first")
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols, cache_modifier=".cs")


def block_of(n_cols: int, widest: int) -> int:
    """Width of a block for rows of n_cols."""
    return min(triton.next_power_of_2(n_cols), widest)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    block = block_of(n_cols, FORWARD_BLOCK)
    persistent_softmax_kernel[(min(n_rows, PROGRAMS),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 1024, 1), 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    block = block_of(n_cols, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 512, 4), 16),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
