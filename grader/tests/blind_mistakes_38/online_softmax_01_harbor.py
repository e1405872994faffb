# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In the forward kernel every lane keeps its own maximum m and its own sum d relative to it, but the final denominator is `total = tl.sum(d, axis=0)`: the lanes' sums are added without being brought to the common maximum. A row that fits one block is divided by its number of finite columns. Wrong in nearly every case (right only where all lanes have the same maximum: one column, constant rows). It should be `tl.sum(d * tl.exp(m - top), axis=0)`.
"""Row softmax in which every lane runs the online recurrence for its own columns."""

import torch
import triton
import triton.language as tl

LANES = 2048
BACKWARD_LANES = 4096


@triton.jit
def lane_softmax_kernel(x_ptr, y_ptr, n_cols, x_stride, y_stride, LANES: tl.constexpr):
    """Program i owns row i; lane k sees the columns k, k + LANES, k + 2 * LANES, ..."""
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    lane = tl.arange(0, LANES)

    # One reduction at the end is cheaper than one for each block.
    m = tl.full((LANES,), -float("inf"), tl.float32)
    d = tl.zeros((LANES,), tl.float32)
    for start in range(0, n_cols, LANES):
        cols = start + lane
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, x)
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.exp(x - shift)
        m = m_new

    top = tl.max(m, axis=0)
    total = tl.sum(d, axis=0)

    for start in range(0, n_cols, LANES):
        cols = start + lane
        inside = cols < n_cols
        x = tl.load(x_row + cols, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top) / total
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def lane_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, dy_stride, y_stride, dx_stride, LANES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * dy_stride
    y_row = y_ptr + row * y_stride
    dx_row = dx_ptr + row * dx_stride
    lane = tl.arange(0, LANES)

    products = tl.zeros((LANES,), tl.float32)
    for start in range(0, n_cols, LANES):
        cols = start + lane
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
        products += dy * y
    s = tl.sum(products, axis=0)

    for start in range(0, n_cols, LANES):
        cols = start + lane
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    lanes = min(triton.next_power_of_2(n_cols), LANES)
    warps = max(1, min(8, lanes // 256))
    lane_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), LANES=lanes, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    lanes = min(triton.next_power_of_2(n_cols), BACKWARD_LANES)
    warps = max(1, min(8, lanes // 512))
    lane_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), LANES=lanes, num_warps=warps
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
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
