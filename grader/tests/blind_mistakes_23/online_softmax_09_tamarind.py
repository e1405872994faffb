# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax on tiles: a program has several short rows at a time, or one long row piece by piece."""

import torch
import triton
import triton.language as tl

TILE = 4096  # values of a program, where the rows are short
WIDEST = 16384
MOST_ROWS = 16
LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """Program p owns the rows p * ROWS to (p + 1) * ROWS - 1, and a tile moves along them."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, COLS)[None, :]
    real = (rows < n_rows)[:, None]
    tile = x_ptr + rows[:, None] * stride_x + lanes
    target = y_ptr + rows[:, None] * stride_y + lanes
    m = tl.full((ROWS,), LOWEST, tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    done = 0
    while done < n_cols:
        x = tl.load(tile + done, mask=real & (lanes < n_cols - done), other=-float("inf")).to(tl.float32)
        # From the lowest finite number on, a tile of -inf alone leaves d at 0, without NaN.
        top = tl.maximum(m, tl.max(x, axis=1))
        d = d * tl.exp(m - top) + tl.sum(tl.exp(x - top[:, None]), axis=1)
        m = top
        done += COLS
    # Rows that do not exist have d = 0.
    d = tl.where(rows < n_rows, d, 1.0)
    done = 0
    while done < n_cols:
        inside = real & (lanes < n_cols - done)
        x = tl.load(tile + done, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(target + done, y.to(y_ptr.dtype.element_ty), mask=inside)
        done += COLS


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """The same tiles; products are summed place by place, and along the row only once."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, COLS)[None, :]
    real = (rows < n_rows)[:, None]
    dy_tile = dy_ptr + rows[:, None] * stride_dy + lanes
    y_tile = y_ptr + rows[:, None] * stride_y + lanes
    dx_tile = dx_ptr + rows[:, None] * stride_dx + lanes
    products = tl.zeros((ROWS, COLS), dtype=tl.float32)
    done = 0
    while done < n_cols:
        inside = real & (lanes < n_cols - done)
        dy = tl.load(dy_tile + done, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_tile + done, mask=inside, other=0.0).to(tl.float32)
        products += dy * y
        done += COLS
    s = tl.sum(products, axis=1)[:, None]
    done = 0
    while done < n_cols:
        inside = real & (lanes < n_cols - done)
        dy = tl.load(dy_tile + done, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_tile + done, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_tile + done, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)
        done += COLS


def plan(n_rows, n_cols, per_warp):
    """Grid and options of a launch."""
    cols = max(16, min(triton.next_power_of_2(n_cols), WIDEST))
    rows = max(1, min(TILE // cols, MOST_ROWS))
    warps = max(4, min(rows * cols // per_warp, 32))
    return (triton.cdiv(n_rows, rows),), {"ROWS": rows, "COLS": cols, "num_warps": warps}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    result = x.new_empty(x.shape) if out is None else out
    n_rows, n_cols = x.shape
    grid, options = plan(n_rows, n_cols, 2048)
    online_softmax_kernel[grid](x, result, n_rows, n_cols, x.stride(0), result.stride(0), **options)
    return result


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the result y."""
    result = dy.new_empty(dy.shape) if out is None else out
    n_rows, n_cols = dy.shape
    grid, options = plan(n_rows, n_cols, 512)
    softmax_backward_kernel[grid](
        dy, y, result, n_rows, n_cols, dy.stride(0), y.stride(0), result.stride(0), **options
    )
    return result


class OnlineSoftmax(torch.autograd.Function):
    """Both as one differentiable function."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(y := softmax_forward(x))
        return y

    @staticmethod
    def backward(ctx, dy):
        return softmax_backward(dy.contiguous(), *ctx.saved_tensors)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
