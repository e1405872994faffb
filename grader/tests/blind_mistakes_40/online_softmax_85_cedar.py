# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `gradient_from_x_kernel` (launched by `OnlineSoftmax.backward`) `s += tl.sum(e * load(dy_row, ...), axis=0)` adds exp(x - m) * dy without the factor 1/d, so s is d times too large: it should be `s = s * inverse` before `y * (dy - s)`. The gradient of `softmax` is wrong in all cases but rows whose d is 1; y, `softmax_forward` and `softmax_backward` are right.
"""Online softmax and its gradient. For autograd two numbers of each row are kept, and y is computed again."""

import torch
import triton
import triton.language as tl

BLOCK_COLS = 8192


@triton.jit
def load(row_ptr, cols, n_cols, other):
    """Columns of a row as fp32; behind its end `other`."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def store(row_ptr, cols, n_cols, values):
    """Columns of a row in the dtype of its memory."""
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    stats_ptr,  # (n_rows, 2) fp32: maximum and 1 / sum of each row; only with KEEP
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
    KEEP: tl.constexpr,
):
    """Softmax of row i by program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = load(x_row, start + lanes, n_cols, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    inverse = 1.0 / d
    if KEEP:
        tl.store(stats_ptr + 2 * row, m)
        tl.store(stats_ptr + 2 * row + 1, inverse)
    for start in range(0, n_cols, BLOCK):
        x = load(x_row, start + lanes, n_cols, -float("inf"))
        store(y_row, start + lanes, n_cols, tl.exp(x - m) * inverse)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """Gradient of row i by program i, from dy and y."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        s += tl.sum(load(y_row, cols, n_cols, 0.0) * load(dy_row, cols, n_cols, 0.0), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        store(dx_row, cols, n_cols, load(y_row, cols, n_cols, 0.0) * (load(dy_row, cols, n_cols, 0.0) - s))


@triton.jit
def gradient_from_x_kernel(
    dy_ptr, x_ptr, stats_ptr, dx_ptr, n_cols, stride_dy, stride_x, stride_dx, BLOCK: tl.constexpr
):
    """Gradient of row i by program i, from dy and x and the two numbers of the row."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    m = tl.load(stats_ptr + 2 * row)
    inverse = tl.load(stats_ptr + 2 * row + 1)
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        e = tl.exp(load(x_row, cols, n_cols, -float("inf")) - m)
        s += tl.sum(e * load(dy_row, cols, n_cols, 0.0), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        y = tl.exp(load(x_row, cols, n_cols, -float("inf")) - m) * inverse
        store(dx_row, cols, n_cols, y * (load(dy_row, cols, n_cols, 0.0) - s))


def new_matrix(like: torch.Tensor) -> torch.Tensor:
    return torch.empty(like.shape, dtype=like.dtype, device=like.device)


def block_and_warps(n_cols: int, cols_of_a_warp: int):
    block = min(triton.next_power_of_2(n_cols), BLOCK_COLS)
    return block, min(max(block // cols_of_a_warp, 1), 16)


def launch_forward(x, out, stats, keep):
    block, warps = block_and_warps(x.shape[1], 1024)
    online_softmax_kernel[(x.shape[0],)](
        x, out, stats, x.shape[1], x.stride(0), out.stride(0), BLOCK=block, KEEP=keep, num_warps=warps
    )


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols); the result goes to `out` where one is given."""
    out = new_matrix(x) if out is None else out
    launch_forward(x, out, out, False)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    out = new_matrix(dy) if out is None else out
    n_rows, n_cols = dy.shape
    block, warps = block_and_warps(n_cols, 512)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax that keeps x, which is there anyway, and two numbers for each row."""

    @staticmethod
    def forward(ctx, x):
        y = new_matrix(x)
        stats = torch.empty((x.shape[0], 2), dtype=torch.float32, device=x.device)
        launch_forward(x, y, stats, True)
        ctx.save_for_backward(x, stats)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, stats = ctx.saved_tensors
        dy = dy.contiguous()
        dx = new_matrix(x)
        n_rows, n_cols = x.shape
        block, warps = block_and_warps(n_cols, 512)
        gradient_from_x_kernel[(n_rows,)](
            dy, x, stats, dx, n_cols, dy.stride(0), x.stride(0), dx.stride(0), BLOCK=block, num_warps=warps
        )
        return dx


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
