# labs/lab2_online_softmax/online_softmax.py | error | In `tile_softmax_kernel`, `tl.max(x, axis=1, keepdims=True)` and `tl.sum(..., axis=1, keepdims=True)` use NumPy's name of the argument; Triton's is `keep_dims`. TypeError or CompilationError in all cases.
"""Online softmax on two-dimensional tiles of rows and columns; gradient and autograd function."""

import torch
import triton
import triton.language as tl

WIDEST = 8192
TILE = 4096


@triton.jit
def tile_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """Softmax of ROWS rows by one program, COLS columns at a time; m and d are columns of ROWS numbers."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, COLS)[None, :]
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y
    m = tl.full((ROWS, 1), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        inside = (rows < n_rows) & (cols < n_cols - start)
        x = tl.load(x_rows + start + cols, mask=inside, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1, keepdims=True))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=1, keepdims=True)
        m = m_new
    m = tl.where(rows < n_rows, m, 0.0)
    d = tl.where(rows < n_rows, d, 1.0)
    for start in range(0, n_cols, COLS):
        inside = (rows < n_rows) & (cols < n_cols - start)
        x = tl.load(x_rows + start + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_rows + start + cols, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - s); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        inside = lanes < n_cols - start
        dy = tl.load(dy_row + start + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + start + lanes, mask=inside, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        inside = lanes < n_cols - start
        dy = tl.load(dy_row + start + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + start + lanes, mask=inside, other=0.0).to(tl.float32)
        dx = (dy - s) * y
        tl.store(dx_row + start + lanes, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    cols = min(triton.next_power_of_2(n_cols), WIDEST)
    rows = min(max(TILE // cols, 1), 8)
    tile_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0),
        ROWS=rows, COLS=cols, num_warps=min(max(rows * cols // 1024, 1), 8),
    )  # fmt: skip
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0),
        BLOCK=block, num_warps=min(max(block // 512, 4), 16),
    )  # fmt: skip
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
