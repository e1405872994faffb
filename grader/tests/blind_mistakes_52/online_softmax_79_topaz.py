# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Unusual: with fewer than 256 rows longer than 8192 columns, the rows are split into pieces and both directions take two launches of one kernel (a constexpr STEP chooses): the first stores maximum and sum (or the sum of y * dy) of each piece to an fp32 workspace, the second joins these and writes. Otherwise one program does a whole row (STEP 0). Backward returns None where no gradient is needed.
"""Softmax with one program a row where rows are many. Where they are few and long, each is cut into pieces:

one launch reduces the pieces, a second one joins the reductions and writes the result.
"""

import torch
import triton
import triton.language as tl

BLOCK_LIMIT = 4096  # columns for one turn of a loop
PIECE = 8192  # columns of a piece, a multiple of every block
MANY_ROWS = 256  # enough programs to keep a GPU busy


@triton.jit
def reduce_x(x_row, first, last, BLOCK: tl.constexpr):
    """Maximum of columns first to last of a row, and the sum of exp relative to it; -inf and 0 for -inf alone."""
    m = -float("inf")
    d = 0.0
    for start in range(first, last, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < last, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    return m, d


@triton.jit
def write_y(x_row, y_row, m, d, first, last, BLOCK: tl.constexpr):
    """The result in columns first to last."""
    for start in range(first, last, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < last, other=-float("inf")).to(tl.float32)
        tl.store(y_row + cols, (tl.exp(x - m) / d).to(y_row.dtype.element_ty), mask=cols < last)


@triton.jit
def reduce_dy(dy_row, y_row, first, last, BLOCK: tl.constexpr):
    """Sum of y * dy over columns first to last."""
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(first, last, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < last, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < last, other=0.0).to(tl.float32)
        products += y * dy
    return tl.sum(products, axis=0)


@triton.jit
def write_dx(dy_row, y_row, dx_row, s, first, last, BLOCK: tl.constexpr):
    """The gradient in columns first to last."""
    for start in range(first, last, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < last, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < last, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_row.dtype.element_ty), mask=cols < last)


@triton.jit
def forward_kernel(
    x_ptr, y_ptr, part_ptr, n_cols, n_pieces, stride_x, stride_y,
    STEP: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """Step 0: a whole row. Step 1: the two reductions of a piece, to part[row, piece, :]. Step 2: a piece of y."""
    row = (tl.program_id(0) // n_pieces).to(tl.int64)
    piece = tl.program_id(0) % n_pieces
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    if STEP == 0:
        m, d = reduce_x(x_row, 0, n_cols, BLOCK)
        write_y(x_row, y_row, m, d, 0, n_cols, BLOCK)
    else:
        first = piece * WIDTH
        last = tl.minimum(first + WIDTH, n_cols)
        part_row = part_ptr + row * n_pieces * 2
        if STEP == 1:
            m, d = reduce_x(x_row, first, last, BLOCK)
            tl.store(part_row + piece * 2, m)
            tl.store(part_row + piece * 2 + 1, d)
        else:
            k = tl.arange(0, PIECES)
            tops = tl.load(part_row + k * 2, mask=k < n_pieces, other=-float("inf"))
            sums = tl.load(part_row + k * 2 + 1, mask=k < n_pieces, other=0.0)
            m = tl.max(tops, axis=0)  # finite, because a row has a finite value
            d = tl.sum(sums * tl.exp(tops - m), axis=0)
            write_y(x_row, y_row, m, d, first, last, BLOCK)


@triton.jit
def backward_kernel(
    dy_ptr, y_ptr, dx_ptr, part_ptr, n_cols, n_pieces, stride_dy, stride_y, stride_dx,
    STEP: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """The same steps: a whole row, the sum of a piece to part[row, piece], a piece of dx."""
    row = (tl.program_id(0) // n_pieces).to(tl.int64)
    piece = tl.program_id(0) % n_pieces
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    if STEP == 0:
        s = reduce_dy(dy_row, y_row, 0, n_cols, BLOCK)
        write_dx(dy_row, y_row, dx_row, s, 0, n_cols, BLOCK)
    else:
        first = piece * WIDTH
        last = tl.minimum(first + WIDTH, n_cols)
        part_row = part_ptr + row * n_pieces
        if STEP == 1:
            tl.store(part_row + piece, reduce_dy(dy_row, y_row, first, last, BLOCK))
        else:
            k = tl.arange(0, PIECES)
            s = tl.sum(tl.load(part_row + k, mask=k < n_pieces, other=0.0), axis=0)
            write_dx(dy_row, y_row, dx_row, s, first, last, BLOCK)


def plan(n_rows: int, n_cols: int):
    """Pieces of a row, steps to launch, and the constants of each launch."""
    n_pieces = 1 if n_rows >= MANY_ROWS else triton.cdiv(n_cols, PIECE)
    block = min(triton.next_power_of_2(n_cols), BLOCK_LIMIT)
    constants = {
        "WIDTH": PIECE,
        "BLOCK": block,
        "PIECES": triton.next_power_of_2(n_pieces),
        "num_warps": min(max(block // 512, 1), 8),
    }
    return n_pieces, (0,) if n_pieces == 1 else (1, 2), constants


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, in `out` if there is one."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    n_pieces, steps, constants = plan(n_rows, n_cols)
    part = torch.empty((n_rows, n_pieces, 2), dtype=torch.float32, device=x.device)
    for step in steps:
        forward_kernel[(n_rows * n_pieces,)](
            x, out, part, n_cols, n_pieces, x.stride(0), out.stride(0), STEP=step, **constants
        )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, in `out` if there is one."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    n_pieces, steps, constants = plan(n_rows, n_cols)
    part = torch.empty((n_rows, n_pieces), dtype=torch.float32, device=dy.device)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    for step in steps:
        backward_kernel[(n_rows * n_pieces,)](
            dy, y, out, part, n_cols, n_pieces, *strides, STEP=step, **constants
        )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward, and softmax_backward for its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y, which backward needs again."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx, or nothing where nobody asks for it."""
        if not ctx.needs_input_grad[0]:
            return None
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension of x, for autograd."""
    return OnlineSoftmax.apply(x)
