# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Unusual: two-dimensional tiles, so that up to 16 narrow rows share a program (with a maximum and a sum for each row, `axis=1`), a constexpr `WHOLE` that keeps a row of one block in registers without any loop, the lowest finite fp32 number in place of -inf as the first maximum, and exp2 with log2(e) multiplied after the subtraction, in a helper.
"""Softmax on tiles of rows: narrow rows share a program, a row that fits a block never leaves the registers."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384  # the widest blocks whose values stay in registers
BACKWARD_BLOCK = 16384
TILE = 1024  # rows narrower than this are put together, up to this many elements
MOST_ROWS = 16

LOG2_E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


@triton.jit
def exp_of(difference):
    """e to a difference that was taken in natural units."""
    return tl.exp2(difference * LOG2_E)


@triton.jit
def rows_of_program(n_rows, ROWS: tl.constexpr):
    """A column of ROWS row numbers, int64, and which of them exist."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    return rows, rows < n_rows


@triton.jit
def online_softmax_kernel(
    x_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    y_ptr,  # (n_rows, n_cols) like x
    n_rows,
    n_cols,
    stride_x,  # elements from one row of x to the next
    stride_y,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,  # a row fits one block
):
    """y[i, :] = exp(x[i, :] - m) / d, m = max x[i, :], d = sum exp(x[i, :] - m); a program owns ROWS rows."""
    rows, real = rows_of_program(n_rows, ROWS)
    lanes = tl.arange(0, BLOCK)[None, :]
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y
    if WHOLE:
        inside = real & (lanes < n_cols)
        x = tl.load(x_rows + lanes, mask=inside, other=-float("inf")).to(tl.float32)
        m = tl.maximum(tl.max(x, axis=1), LOWEST)
        e = exp_of(x - m[:, None])
        d = tl.sum(e, axis=1)
        y = e / d[:, None]
        tl.store(y_rows + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)
    else:
        # From the lowest finite number no difference below is -inf - -inf.
        m = tl.full((ROWS,), LOWEST, tl.float32)
        d = tl.zeros((ROWS,), tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(
                x_rows + cols,
                mask=real & (cols < n_cols),
                other=-float("inf"),
                eviction_policy="evict_last",
            ).to(tl.float32)
            higher = tl.maximum(m, tl.max(x, axis=1))
            d = d * exp_of(m - higher) + tl.sum(exp_of(x - higher[:, None]), axis=1)
            m = higher
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            inside = real & (cols < n_cols)
            x = tl.load(
                x_rows + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first"
            ).to(tl.float32)
            y = exp_of(x - m[:, None]) / d[:, None]
            tl.store(
                y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first"
            )


@triton.jit
def softmax_backward_kernel(
    dy_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    y_ptr,  # (n_rows, n_cols) like dy, the result of the forward pass
    dx_ptr,  # (n_rows, n_cols) like dy
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); a program owns ROWS rows."""
    rows, real = rows_of_program(n_rows, ROWS)
    lanes = tl.arange(0, BLOCK)[None, :]
    dy_rows = dy_ptr + rows * stride_dy
    y_rows = y_ptr + rows * stride_y
    dx_rows = dx_ptr + rows * stride_dx
    if WHOLE:
        inside = real & (lanes < n_cols)
        dy = tl.load(dy_rows + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_rows + lanes, mask=inside, other=0.0).to(tl.float32)
        s = tl.sum(y * dy, axis=1)
        dx = y * (dy - s[:, None])
        tl.store(dx_rows + lanes, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    else:
        s = tl.zeros((ROWS,), tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            inside = real & (cols < n_cols)
            dy = tl.load(dy_rows + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
            y = tl.load(y_rows + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
            s += tl.sum(y * dy, axis=1)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            inside = real & (cols < n_cols)
            dy = tl.load(dy_rows + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
            y = tl.load(y_rows + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
            dx = y * (dy - s[:, None])
            tl.store(
                dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first"
            )


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def new_like(x):
    """A new contiguous matrix of the shape and dtype of x, which may have gaps between its rows."""
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def tile_of(n_cols: int, widest: int) -> tuple:
    """Rows and columns of a tile, both powers of two."""
    block = min(triton.next_power_of_2(n_cols), widest)
    return clamp(TILE // block, 1, MOST_ROWS), block


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous.

    Rows of x and of `out` may be any number of elements apart; the result goes to `out`, of the same shape,
    where one is given. Each row holds at least one finite value; -inf is allowed beside it. After Milakov and
    Gimelshein, arXiv:1805.02867, algorithm 3.
    """
    out = new_like(x) if out is None else out
    n_rows, n_cols = x.shape
    rows, block = tile_of(n_cols, FORWARD_BLOCK)
    warps = 8 if block >= 16384 else clamp(rows * block // 1024, 1, 4)
    online_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=rows,
        BLOCK=block,
        WHOLE=n_cols <= block,
        num_warps=warps,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols).

    Rows may be any number of elements apart; the result goes to `out` where one is given.
    """
    out = new_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    rows, block = tile_of(n_cols, BACKWARD_BLOCK)
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
        WHOLE=n_cols <= block,
        num_warps=clamp(rows * block // 512, 4, 32),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x; what ctx.save_for_backward is given, backward finds in ctx.saved_tensors."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
