# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `softmax_backward_kernel` tiles have their columns along axis 0 and rows along axis 1, and `s = tl.sum(products, axis=1, keep_dims=True)` adds over the rows of the tile; it should be `axis=0` (over the columns of a row). Wrong in all cases except 1 x 1; gradients of `softmax` are wrong, too, while the forward pass is right.
"""Online softmax over rows, and its gradient on tiles of several rows; both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
TILE = 4096  # elements of a tile of the gradient


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y of row i by program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_row_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift))
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=mask, other=-float("inf"), eviction_policy="evict_first").to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")


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
    """dx of ROWS rows by each program, on tiles of BLOCK columns, which run along the first axis."""
    rows = (tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[None, :]
    dy_ptrs = dy_ptr + rows * stride_dy
    y_ptrs = y_ptr + rows * stride_y
    dx_ptrs = dx_ptr + rows * stride_dx
    lanes = tl.arange(0, BLOCK)[:, None]
    products = tl.zeros([BLOCK, ROWS], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        mask = (cols < n_cols) & (rows < n_rows)
        dy = tl.load(dy_ptrs + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_ptrs + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        products += y * dy
    s = tl.sum(products, axis=1, keep_dims=True)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        mask = (cols < n_cols) & (rows < n_rows)
        dy = tl.load(dy_ptrs + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_ptrs + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptrs + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; the result goes to `out` where one is given."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 8 if block == FORWARD_BLOCK else clamp(block // 1024, 1, 4)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input; it goes to `out` where one is given."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), TILE)
    rows = clamp(TILE // block, 1, 8)
    softmax_backward_kernel[(triton.cdiv(n_rows, rows),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=rows,
        BLOCK=block,
        num_warps=8,
    )
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
