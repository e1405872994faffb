# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | forward_kernel, after the first loop: each lane keeps its own maximum and its own sum, but the sums are added without being brought to the common maximum; it must be tl.sum(d * tl.exp(m - top)).
import torch
import triton
import triton.language as tl


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, x_step, y_step, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_step
    y_ptr += row * y_step
    lane = tl.arange(0, BLOCK)
    # no reduction inside of the loop: every lane is its own little online softmax
    m = tl.full((BLOCK,), -float("inf"), tl.float32)
    d = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, x)
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.exp(x - shift)
        m = m_new
    top = tl.max(m, axis=0)
    total = tl.sum(d, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top) / total
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def backward_kernel(g_ptr, y_ptr, dx_ptr, n_cols, g_step, y_step, dx_step, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    part = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        g = tl.load(g_ptr + row * g_step + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * y_step + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        part += g * y
    s = tl.sum(part, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        g = tl.load(g_ptr + row * g_step + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * y_step + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * dx_step + cols, (y * (g - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    rows, cols = x.shape
    block = min(4096, triton.next_power_of_2(cols))
    forward_kernel[(rows,)](x, out, cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4 if block < 2048 else 8)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    rows, cols = dy.shape
    block = min(4096, triton.next_power_of_2(cols))
    backward_kernel[(rows,)](
        dy, y, out, cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
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
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
