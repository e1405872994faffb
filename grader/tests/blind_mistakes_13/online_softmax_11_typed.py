# labs/lab2_online_softmax/online_softmax.py | corner | OnlineSoftmax.backward copies dy only `if dy.stride(1) == 0`, so a transposed dy or every second column of a wider matrix reaches the kernel with columns that are not contiguous and is read at wrong places; it should be `dy = dy.contiguous()` for every layout.
"""Online softmax (Milakov and Gimelshein, algorithm 3) with its gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK: int = 16384
BACKWARD_BLOCK: int = 16384


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    pid = tl.program_id(axis=0).to(tl.int64)
    x_start = x_ptr + pid * stride_x
    y_start = y_ptr + pid * stride_y
    block = tl.arange(0, BLOCK)

    m_i = -float("inf")
    l_i = 0.0
    for k in range(0, tl.cdiv(n_cols, BLOCK)):
        offs = k * BLOCK + block
        x = tl.load(x_start + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        m_ij = tl.maximum(m_i, tl.max(x, 0))
        m_use = tl.where(m_ij == -float("inf"), 0.0, m_ij)
        p = tl.exp(x - m_use)
        alpha = tl.exp(m_i - m_use)
        l_i = l_i * alpha + tl.sum(p, 0)
        m_i = m_ij

    for k in range(0, tl.cdiv(n_cols, BLOCK)):
        offs = k * BLOCK + block
        x = tl.load(x_start + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        p = tl.exp(x - m_i) / l_i
        tl.store(y_start + offs, p.to(y_ptr.dtype.element_ty), mask=offs < n_cols)


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
    pid = tl.program_id(axis=0).to(tl.int64)
    dy_start = dy_ptr + pid * stride_dy
    y_start = y_ptr + pid * stride_y
    dx_start = dx_ptr + pid * stride_dx
    block = tl.arange(0, BLOCK)

    delta = 0.0
    for k in range(0, tl.cdiv(n_cols, BLOCK)):
        offs = k * BLOCK + block
        do = tl.load(dy_start + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        p = tl.load(y_start + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        delta += tl.sum(p * do, 0)

    for k in range(0, tl.cdiv(n_cols, BLOCK)):
        offs = k * BLOCK + block
        do = tl.load(dy_start + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        p = tl.load(y_start + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        ds = p * (do - delta)
        tl.store(dx_start + offs, ds.to(dx_ptr.dtype.element_ty), mask=offs < n_cols)


def pick_block(n_cols: int, widest: int) -> int:
    """A power of two that holds the row, if there is one that is not too wide."""
    return min(triton.next_power_of_2(n_cols), widest)


def pick_warps(block: int, each: int, most: int) -> int:
    """A warp for each `each` columns."""
    return max(1, min(block // each, most))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows: int = x.shape[0]
    n_cols: int = x.shape[1]
    block: int = pick_block(n_cols, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=pick_warps(block, 1024, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = dy.new_empty(dy.shape)
    n_rows: int = dy.shape[0]
    n_cols: int = dy.shape[1]
    block: int = pick_block(n_cols, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=pick_warps(block, 512, 16),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy: torch.Tensor) -> torch.Tensor:
        (y,) = ctx.saved_tensors
        if dy.stride(1) == 0:  # expanded, as from sum()
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
