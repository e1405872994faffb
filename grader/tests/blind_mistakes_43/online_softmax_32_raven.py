# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax (its gradient): `forward_kernel` stores `scale = 1.0 / d` in the second column of stats, and `recompute_kernel` loads it as `d = tl.load(stats_ptr + row * 2 + 1)` and divides by it: `y = tl.exp(... - m) / d` in both loops should be `* d` (or the sum d should be stored). dx is wrong in all cases but rows whose sum d is 1 (one column); y of softmax, softmax_forward and softmax_backward are right.
"""Online softmax by rows. The autograd function keeps two numbers of each row beside x, and no copy of y."""

import torch
import triton
import triton.language as tl

WIDEST = 8192


@triton.jit
def load_row(row_ptr, cols, n_cols, other):
    """Return columns of a row in fp32, `other` past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def store_row(row_ptr, cols, n_cols, values):
    """Store columns of a row in its own dtype."""
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def fold(x_row, n_cols, BLOCK: tl.constexpr):
    """Return the maximum of a row and the sum of exp(x - maximum)."""
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = load_row(x_row, start + tl.arange(0, BLOCK), n_cols, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    return m, d


@triton.jit
def forward_kernel(
    x_ptr, y_ptr, stats_ptr, n_cols, stride_x, stride_y, KEEP: tl.constexpr, BLOCK: tl.constexpr
):
    """y for row i; with KEEP also what the gradient reads, in row i of stats, (n_rows, 2) fp32."""
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    m, d = fold(x_row, n_cols, BLOCK)
    scale = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load_row(x_row, cols, n_cols, -float("inf"))
        store_row(y_row, cols, n_cols, tl.exp(x - m) * scale)
    if KEEP:
        tl.store(stats_ptr + row * 2, m)
        tl.store(stats_ptr + row * 2 + 1, scale)


@triton.jit
def backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum of y * dy), for row i, from a stored y."""
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        s += tl.sum(load_row(y_row, cols, n_cols, 0.0) * load_row(dy_row, cols, n_cols, 0.0), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = load_row(y_row, cols, n_cols, 0.0)
        dy = load_row(dy_row, cols, n_cols, 0.0)
        store_row(dx_row, cols, n_cols, y * (dy - s))


@triton.jit
def recompute_kernel(
    dy_ptr, x_ptr, stats_ptr, dx_ptr, n_cols, stride_dy, stride_x, stride_dx, BLOCK: tl.constexpr
):
    """The same gradient for row i, from x and the two numbers of the row: y is computed again."""
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    m = tl.load(stats_ptr + row * 2)
    d = tl.load(stats_ptr + row * 2 + 1)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = tl.exp(load_row(x_row, cols, n_cols, -float("inf")) - m) / d
        s += tl.sum(y * load_row(dy_row, cols, n_cols, 0.0), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = tl.exp(load_row(x_row, cols, n_cols, -float("inf")) - m) / d
        dy = load_row(dy_row, cols, n_cols, 0.0)
        store_row(dx_row, cols, n_cols, y * (dy - s))


def sizes(n_cols: int) -> dict:
    """Width of a block and warps for rows of n_cols columns."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    return {"BLOCK": block, "num_warps": min(max(block // 512, 1), 16)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    forward_kernel[(n_rows,)](
        x, out, out, n_cols, x.stride(0), out.stride(0), KEEP=False, **sizes(n_cols)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **sizes(n_cols)
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax whose gradient needs x and two numbers of each row."""

    @staticmethod
    def forward(ctx, x):
        """Return y; keep x and the numbers of its rows."""
        n_rows, n_cols = x.shape
        y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
        stats = torch.empty((n_rows, 2), dtype=torch.float32, device=x.device)
        forward_kernel[(n_rows,)](
            x, y, stats, n_cols, x.stride(0), y.stride(0), KEEP=True, **sizes(n_cols)
        )
        ctx.save_for_backward(x, stats)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx."""
        x, stats = ctx.saved_tensors
        n_rows, n_cols = x.shape
        dy = dy.contiguous()
        dx = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
        recompute_kernel[(n_rows,)](
            dy, x, stats, dx, n_cols, dy.stride(0), x.stride(0), dx.stride(0), **sizes(n_cols)
        )
        return dx


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
