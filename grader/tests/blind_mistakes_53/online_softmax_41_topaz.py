# labs/lab2_online_softmax/online_softmax.py | right | One kernel with a constexpr flag GRADIENT does both passes, in tiles of up to 16 rows, with a maximum and a sum for each lane; in the forward pass x is passed for y, too, and not read there.
"""Softmax and its gradient by one kernel: both reduce a row first, and then go through it again."""

import torch
import triton
import triton.language as tl

ELEMENTS = 4096  # of a tile, which holds some rows in full or in part
ROWS = 16


@triton.jit
def tile(ptr, offsets, mask, other):
    return tl.load(ptr + offsets, mask=mask, other=other).to(tl.float32)


@triton.jit
def rowwise_kernel(
    a_ptr,  # forward: x; backward: dy
    y_ptr,  # backward: the result of the forward pass; forward: not read
    out_ptr,
    n_rows,
    n_cols,
    stride_a,
    stride_y,
    stride_out,
    GRADIENT: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Program i owns ROWS rows, from row i * ROWS on."""
    rows = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    lanes = tl.arange(0, COLS)[None, :]
    n_blocks = tl.cdiv(n_cols, COLS)
    # Lane by lane: the sum of y * dy, or the maximum and the sum relative to it.
    total = tl.zeros([ROWS, COLS], tl.float32)
    if GRADIENT:
        for block in range(0, n_blocks):
            cols = block * COLS + lanes
            mask = (rows < n_rows) & (cols < n_cols)
            dy = tile(a_ptr, rows * stride_a + cols, mask, 0.0)
            total += dy * tile(y_ptr, rows * stride_y + cols, mask, 0.0)
        s = tl.sum(total, axis=1, keep_dims=True)
        for block in range(0, n_blocks):
            cols = block * COLS + lanes
            mask = (rows < n_rows) & (cols < n_cols)
            dy = tile(a_ptr, rows * stride_a + cols, mask, 0.0)
            dx = tile(y_ptr, rows * stride_y + cols, mask, 0.0) * (dy - s)
            tl.store(out_ptr + rows * stride_out + cols, dx.to(out_ptr.dtype.element_ty), mask=mask)
    else:
        top = tl.full([ROWS, COLS], -float("inf"), tl.float32)
        for block in range(0, n_blocks):
            cols = block * COLS + lanes
            mask = (rows < n_rows) & (cols < n_cols)
            x = tile(a_ptr, rows * stride_a + cols, mask, -float("inf"))
            higher = tl.maximum(top, x)
            base = tl.where(higher == -float("inf"), 0.0, higher)
            total = total * tl.exp(top - base) + tl.exp(x - base)
            top = higher
        m = tl.max(top, axis=1, keep_dims=True)
        m = tl.where(m == -float("inf"), 0.0, m)  # of rows past the last one
        d = tl.sum(total * tl.exp(top - m), axis=1, keep_dims=True)
        for block in range(0, n_blocks):
            cols = block * COLS + lanes
            mask = (rows < n_rows) & (cols < n_cols)
            x = tile(a_ptr, rows * stride_a + cols, mask, -float("inf"))
            share = tl.exp(x - m) / d
            tl.store(out_ptr + rows * stride_out + cols, share.to(out_ptr.dtype.element_ty), mask=mask)


def launch(a: torch.Tensor, y: torch.Tensor, out: torch.Tensor, gradient: bool) -> torch.Tensor:
    """Fill `out`, from x alone (given twice), or from dy and y."""
    n_rows, n_cols = a.shape
    cols = min(triton.next_power_of_2(n_cols), ELEMENTS)
    rows = min(ELEMENTS // cols, ROWS)
    rowwise_kernel[(triton.cdiv(n_rows, rows),)](
        a,
        y,
        out,
        n_rows,
        n_cols,
        a.stride(0),
        y.stride(0),
        out.stride(0),
        GRADIENT=gradient,
        ROWS=rows,
        COLS=cols,
        num_warps=8,
    )
    return out


def fresh_like(x: torch.Tensor) -> torch.Tensor:
    """A contiguous matrix of the shape and the dtype of x."""
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous."""
    return launch(x, x, fresh_like(x) if out is None else out, False)


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    return launch(dy, y, fresh_like(dy) if out is None else out, True)


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        if not ctx.needs_input_grad[0]:
            return None
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
