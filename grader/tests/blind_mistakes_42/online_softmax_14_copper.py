# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | Exercise softmax (its gradient only): `softmax_kernel` keeps `norm = 1.0 / d`, and `recompute_kernel` divides by it, `tl.exp(... - m) / norm`, in both loops; it should be `* norm` (or d should be kept). dx is wrong in all cases but rows with d = 1 (one column, one value far above all others); softmax_forward and softmax_backward are right.
"""Online softmax whose autograd function keeps x and two numbers for each row, and computes y again in backward."""

import torch
import triton
import triton.language as tl


@triton.jit
def load_fp32(row_ptr, cols, n_cols, other):
    """Columns of a row in fp32; `other` past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def softmax_kernel(
    x_ptr,
    y_ptr,
    kept_ptr,  # (n_rows, 2) fp32, contiguous, or None
    n_cols,
    stride_x,
    stride_y,
    KEEP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y of one row; with KEEP also the maximum of the row and its normalisation."""
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    block = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in tl.range(0, n_cols, BLOCK):
        x = load_fp32(x_row, start + block, n_cols, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        if m_new > -float("inf"):
            d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0)
        m = m_new
    norm = 1.0 / d
    if KEEP:
        tl.store(kept_ptr + 2 * row, m)
        tl.store(kept_ptr + 2 * row + 1, norm)
    for start in tl.range(0, n_cols, BLOCK):
        y = tl.exp(load_fp32(x_row, start + block, n_cols, -float("inf")) - m) * norm
        tl.store(y_row + start + block, y.to(y_ptr.dtype.element_ty), mask=start + block < n_cols)


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx of one row, from dy and y."""
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    block = tl.arange(0, BLOCK)
    s = 0.0
    for start in tl.range(0, n_cols, BLOCK):
        dy = load_fp32(dy_row, start + block, n_cols, 0.0)
        s += tl.sum(dy * load_fp32(y_row, start + block, n_cols, 0.0), axis=0)
    for start in tl.range(0, n_cols, BLOCK):
        dy = load_fp32(dy_row, start + block, n_cols, 0.0)
        dx = load_fp32(y_row, start + block, n_cols, 0.0) * (dy - s)
        tl.store(dx_row + start + block, dx.to(dx_ptr.dtype.element_ty), mask=start + block < n_cols)


@triton.jit
def recompute_kernel(dy_ptr, x_ptr, kept_ptr, dx_ptr, n_cols, stride_dy, stride_x, stride_dx, BLOCK: tl.constexpr):
    """dx of one row, from dy, x and what softmax_kernel kept of the row."""
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    block = tl.arange(0, BLOCK)
    m = tl.load(kept_ptr + 2 * row)
    norm = tl.load(kept_ptr + 2 * row + 1)
    s = 0.0
    for start in tl.range(0, n_cols, BLOCK):
        y = tl.exp(load_fp32(x_row, start + block, n_cols, -float("inf")) - m) / norm
        s += tl.sum(y * load_fp32(dy_row, start + block, n_cols, 0.0), axis=0)
    for start in tl.range(0, n_cols, BLOCK):
        y = tl.exp(load_fp32(x_row, start + block, n_cols, -float("inf")) - m) / norm
        dx = y * (load_fp32(dy_row, start + block, n_cols, 0.0) - s)
        tl.store(dx_row + start + block, dx.to(dx_ptr.dtype.element_ty), mask=start + block < n_cols)


def options(n_cols: int, per_warp: int) -> dict:
    """Width of a block and number of warps."""
    block = min(triton.next_power_of_2(n_cols), 8192)
    return {"BLOCK": block, "num_warps": min(max(block // per_warp, 2), 16)}


def launch_forward(x: torch.Tensor, out: torch.Tensor, kept: torch.Tensor | None):
    """Write softmax of x to out, and what the gradient needs to kept, where that is given."""
    n_rows, n_cols = x.shape
    more = options(n_cols, 1024)
    softmax_kernel[(n_rows,)](
        x, out, kept, n_cols, x.stride(0), out.stride(0), KEEP=kept is not None, **more
    )


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), any row stride."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    launch_forward(x, out, None)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input of softmax, from dy and the result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **options(n_cols, 512)
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax that keeps its input, which the layer before holds anyway, and not its result."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        kept = torch.empty((x.shape[0], 2), dtype=torch.float32, device=x.device)
        launch_forward(x, y, kept)
        ctx.save_for_backward(x, kept)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        x, kept = ctx.saved_tensors
        n_rows, n_cols = x.shape
        dy = dy.contiguous()
        dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        recompute_kernel[(n_rows,)](
            dy, x, kept, dx, n_cols, dy.stride(0), x.stride(0), dx.stride(0), **options(n_cols, 512)
        )
        return dx


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
