# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward_kernel, `y * (dy - s)` in the second loop: s has the shape (ROWS,), because tl.sum(..., axis=1) drops the axis, and dy has (ROWS, BLOCK); Triton lines s up with the columns, and ROWS (2 or 8) is never BLOCK (16 or more), so the shapes do not fit and the kernel does not compile, for any size. softmax_backward and the gradient of softmax() never run; forward is right. It should be s[:, None], or an s of shape (ROWS, 1) summed with keep_dims=True.
"""Row softmax and its gradient on tiles of a few rows each."""

import torch
import triton
import triton.language as tl


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y

    m = tl.full((ROWS, 1), -float("inf"), tl.float32)
    d = tl.zeros((ROWS, 1), tl.float32)
    for start in range(0, n_cols, BLOCK):
        inside = (rows < n_rows) & (start + lanes < n_cols)
        x = tl.load(x_rows + start + lanes, mask=inside, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1, keep_dims=True))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=1, keep_dims=True)
        m = m_new

    # a row that does not exist has seen nothing but -inf
    m = tl.where(rows < n_rows, m, 0.0)
    d = tl.where(rows < n_rows, d, 1.0)
    for start in range(0, n_cols, BLOCK):
        inside = (rows < n_rows) & (start + lanes < n_cols)
        x = tl.load(x_rows + start + lanes, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_rows + start + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    dy_rows = dy_ptr + rows * stride_dy
    y_rows = y_ptr + rows * stride_y
    dx_rows = dx_ptr + rows * stride_dx

    s = tl.zeros((ROWS,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        inside = (rows < n_rows) & (start + lanes < n_cols)
        dy = tl.load(dy_rows + start + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_rows + start + lanes, mask=inside, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1)

    for start in range(0, n_cols, BLOCK):
        inside = (rows < n_rows) & (start + lanes < n_cols)
        dy = tl.load(dy_rows + start + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_rows + start + lanes, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_rows + start + lanes, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def tile(n_cols: int):
    """Constants of a launch: eight rows where they are short, two otherwise; 16 elements for each thread."""
    block = min(max(triton.next_power_of_2(n_cols), 16), 2048)
    rows = 8 if block <= 256 else 2
    return {"ROWS": rows, "BLOCK": block, "num_warps": max(rows * block // 512, 1)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    launch = tile(n_cols)
    grid = (triton.cdiv(n_rows, launch["ROWS"]),)
    online_softmax_kernel[grid](x, out, n_rows, n_cols, x.stride(0), out.stride(0), **launch)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    launch = tile(n_cols)
    grid = (triton.cdiv(n_rows, launch["ROWS"]),)
    softmax_backward_kernel[grid](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), **launch
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
