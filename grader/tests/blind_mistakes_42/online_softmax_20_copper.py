# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | Exercise softmax_backward (and the gradient of softmax): in `softmax_backward_kernel`, `s = tl.sum(products)` adds up the whole tile of four rows, because no axis means all; it should be `tl.sum(products, axis=1)[:, None]`. Shows in every matrix of more than one row; only a row that is alone in its tile (one row, or the last of 4 k + 1 rows) is right.
"""Online softmax; the gradient goes over four rows at a time, as a tile of two dimensions."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
TILE_ROWS = 4
TILE_COLS = 1024


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Softmax of row program_id of x."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    m = -float("inf")
    d = 0.0
    for start in tl.range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        old = m
        m = tl.maximum(old, tl.max(x, axis=0))
        shift = tl.where(m == -float("inf"), 0.0, m)
        d = d * tl.exp(old - shift) + tl.sum(tl.exp(x - shift), axis=0)
    for start in tl.range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_ptr + offs, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=offs < n_cols)


@triton.jit
def load_tile(ptr, rows, cols, stride, inside):
    """A tile in fp32, 0 outside of the matrix."""
    return tl.load(ptr + rows * stride + cols, mask=inside, other=0.0).to(tl.float32)


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
    COLS: tl.constexpr,
):
    """dx = y * (dy - sum of y * dy) for rows program_id * ROWS and following."""
    rows = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    products = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in tl.range(0, n_cols, COLS):
        cols = (start + tl.arange(0, COLS))[None, :]
        inside = (rows < n_rows) & (cols < n_cols)
        dy = load_tile(dy_ptr, rows, cols, stride_dy, inside)
        y = load_tile(y_ptr, rows, cols, stride_y, inside)
        products += y * dy
    s = tl.sum(products)
    for start in tl.range(0, n_cols, COLS):
        cols = (start + tl.arange(0, COLS))[None, :]
        inside = (rows < n_rows) & (cols < n_cols)
        dy = load_tile(dy_ptr, rows, cols, stride_dy, inside)
        y = load_tile(y_ptr, rows, cols, stride_y, inside)
        dx = y * (dy - s)
        tl.store(dx_ptr + rows * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous, any row stride."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 8 if block > 4096 else 4
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input of softmax, from dy and y, both with any row stride."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(triton.cdiv(n_rows, TILE_ROWS),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=TILE_ROWS,
        COLS=min(triton.next_power_of_2(n_cols), TILE_COLS),
        num_warps=8,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x; y is kept."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy and the y that was kept."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
