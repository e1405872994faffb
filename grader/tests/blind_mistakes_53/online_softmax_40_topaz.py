# labs/lab2_online_softmax/online_softmax.py | right | A block of a row is a matrix with lines of 128 columns, reduced with tl.reduce and own functions, along one axis and then the other; whole blocks have no mask, and the last block of a row is read once and stays in registers; exp2 with log2(e) after the subtraction.
"""Online softmax and its gradient; the last block of a row stays in registers between the two sweeps."""

import torch
import triton
import triton.language as tl

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def columns(start, BLOCK: tl.constexpr):
    """Columns start to start + BLOCK - 1 of a row, as a matrix with lines of 128."""
    return start + tl.arange(0, BLOCK // 128)[:, None] * 128 + tl.arange(0, 128)[None, :]


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def fold(m, d, x):
    """One more block of a row in its maximum m and its sum d."""
    top = tl.reduce(tl.reduce(x, 1, larger), 0, larger)
    m_new = tl.maximum(m, top)
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    terms = tl.exp2((x - shift) * LOG2E)
    part = tl.reduce(tl.reduce(terms, 1, add), 0, add)
    return m_new, d * tl.exp2((m - shift) * LOG2E) + part


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    last = (n_cols - 1) // BLOCK * BLOCK  # first column of the last block
    m = -float("inf")
    d = 0.0
    for start in range(0, last, BLOCK):
        x = tl.load(x_ptr + columns(start, BLOCK), eviction_policy="evict_last").to(tl.float32)
        m, d = fold(m, d, x)
    inside = columns(last, BLOCK) < n_cols
    kept = tl.load(x_ptr + columns(last, BLOCK), mask=inside, other=-float("inf")).to(tl.float32)
    m, d = fold(m, d, kept)
    y = tl.exp2((kept - m) * LOG2E) / d
    tl.store(y_ptr + columns(last, BLOCK), y.to(y_ptr.dtype.element_ty), mask=inside)
    for start in range(0, last, BLOCK):
        x = tl.load(x_ptr + columns(start, BLOCK), eviction_policy="evict_first").to(tl.float32)
        y = tl.exp2((x - m) * LOG2E) / d
        tl.store(y_ptr + columns(start, BLOCK), y.to(y_ptr.dtype.element_ty))


@triton.jit
def backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    last = (n_cols - 1) // BLOCK * BLOCK
    inside = columns(last, BLOCK) < n_cols
    dy_kept = tl.load(dy_ptr + columns(last, BLOCK), mask=inside, other=0.0).to(tl.float32)
    y_kept = tl.load(y_ptr + columns(last, BLOCK), mask=inside, other=0.0).to(tl.float32)
    products = dy_kept * y_kept
    for start in range(0, last, BLOCK):
        dy = tl.load(dy_ptr + columns(start, BLOCK), eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_ptr + columns(start, BLOCK), eviction_policy="evict_last").to(tl.float32)
        products += dy * y
    s = tl.reduce(tl.reduce(products, 1, add), 0, add)
    dx_kept = y_kept * (dy_kept - s)
    tl.store(dx_ptr + columns(last, BLOCK), dx_kept.to(dx_ptr.dtype.element_ty), mask=inside)
    for start in range(0, last, BLOCK):
        dy = tl.load(dy_ptr + columns(start, BLOCK), eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_ptr + columns(start, BLOCK), eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptr + columns(start, BLOCK), dx.to(dx_ptr.dtype.element_ty))


def block_of(n_cols: int) -> int:
    """Columns of a block: 128 at least, and 4096 at most."""
    return min(max(triton.next_power_of_2(n_cols), 128), 4096)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    forward_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=max(block // 1024, 1)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = block_of(n_cols)
    backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=max(block // 512, 1),
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
