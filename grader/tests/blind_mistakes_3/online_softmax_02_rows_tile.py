# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_backward_kernel, the line of dx: y * dy - s leaves out the factor y of the second term; it must be y * (dy - s), that is y * dy - y * s.
import torch
import triton
import triton.language as tl


@triton.jit
def tile_pointers(base, rows, cols, stride):
    return base + rows[:, None].to(tl.int64) * stride + cols[None, :]


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """ROWS rows for each program"""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    m = tl.full((ROWS,), -float("inf"), tl.float32)
    d = tl.zeros((ROWS,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        mask = (rows < n_rows)[:, None] & (start + cols < n_cols)[None, :]
        x = tl.load(tile_pointers(x_ptr, rows, start + cols, stride_x), mask=mask, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new > -float("inf"), m_new, 0.0)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        mask = (rows < n_rows)[:, None] & (start + cols < n_cols)[None, :]
        x = tl.load(tile_pointers(x_ptr, rows, start + cols, stride_x), mask=mask, other=0.0).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(tile_pointers(y_ptr, rows, start + cols, stride_y), y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    s = tl.zeros((ROWS,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        mask = (rows < n_rows)[:, None] & (start + cols < n_cols)[None, :]
        dy = tl.load(tile_pointers(dy_ptr, rows, start + cols, stride_dy), mask=mask, other=0.0).to(tl.float32)
        y = tl.load(tile_pointers(y_ptr, rows, start + cols, stride_y), mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1)
    for start in range(0, n_cols, BLOCK):
        mask = (rows < n_rows)[:, None] & (start + cols < n_cols)[None, :]
        dy = tl.load(tile_pointers(dy_ptr, rows, start + cols, stride_dy), mask=mask, other=0.0).to(tl.float32)
        y = tl.load(tile_pointers(y_ptr, rows, start + cols, stride_y), mask=mask, other=0.0).to(tl.float32)
        dx = y * dy - s[:, None]
        tl.store(tile_pointers(dx_ptr, rows, start + cols, stride_dx), dx.to(dx_ptr.dtype.element_ty), mask=mask)


def _shape(n_cols, widest):
    block = min(triton.next_power_of_2(n_cols), widest)
    return max(1, 1024 // block), block


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    rows, block = _shape(n_cols, 8192)
    online_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, BLOCK=block, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    rows, block = _shape(n_cols, 4096)
    softmax_backward_kernel[(triton.cdiv(n_rows, rows),)](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), ROWS=rows, BLOCK=block, num_warps=8
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
        return softmax_backward(dy.contiguous(), *ctx.saved_tensors)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension."""
    return OnlineSoftmax.apply(x)
