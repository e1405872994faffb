# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `lanewise_softmax_kernel`, `d = tl.sum(total * tl.exp2(top - m), axis=0)` joins the lanes to base 2 although tops are in natural units; it should be `total * decay(top, m)`, i.e. `tl.exp2((top - m) * 1.4426950408889634)`. d is too large and rows sum to less than 1, in all rows but those of one column or of equal values in all lanes.
"""Row softmax where every lane runs the online recurrence on its own columns, and the gradient of it."""

import torch
import triton
import triton.language as tl

LANES = 4096  # columns of a block; each lane keeps a maximum and a sum
GRADIENT_COLUMNS = 8192


@triton.jit
def decay(a, b):
    """exp(a - b)."""
    return tl.exp2((a - b) * 1.4426950408889634)


@triton.jit
def read_block(row_ptr, cols, n_cols, fill):
    """One block of a row in fp32; `fill` stands behind its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=fill).to(tl.float32)


@triton.jit
def lanewise_softmax_kernel(src, dst, n_cols, src_step, dst_step, BLOCK: tl.constexpr):
    """Softmax of one row. The reductions over lanes happen once, after the first sweep."""
    row = tl.program_id(0).to(tl.int64)
    src += row * src_step
    dst += row * dst_step
    lane = tl.arange(0, BLOCK)

    top = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        x = read_block(src, start + lane, n_cols, -float("inf"))
        higher = tl.maximum(top, x)
        base = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * decay(top, base) + decay(x, base)
        top = higher

    # Bring the sums of all lanes to the maximum of the row.
    m = tl.max(top, axis=0)
    d = tl.sum(total * tl.exp2(top - m), axis=0)
    inverse = 1.0 / d

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        x = read_block(src, cols, n_cols, -float("inf"))
        y = decay(x, m) * inverse
        tl.store(dst + cols, y.to(dst.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, dy_step, y_step, dx_step, BLOCK: tl.constexpr
):
    """dx of one row; products are added lane by lane, and over the lanes at the end."""
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * dy_step
    y_ptr += row * y_step
    dx_ptr += row * dx_step
    lane = tl.arange(0, BLOCK)

    products = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        products += read_block(dy_ptr, cols, n_cols, 0.0) * read_block(y_ptr, cols, n_cols, 0.0)
    s = tl.sum(products, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        dx = read_block(y_ptr, cols, n_cols, 0.0) * (read_block(dy_ptr, cols, n_cols, 0.0) - s)
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def width_and_warps(n_cols: int, widest: int, columns_of_a_warp: int):
    """The block for rows of n_cols, and how many warps share it: both powers of two."""
    block = min(triton.next_power_of_2(n_cols), widest)
    return block, min(max(block // columns_of_a_warp, 1), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row of x; rows of x and out may lie any number of elements apart."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows, cols = x.shape
    block, warps = width_and_warps(cols, LANES, 512)
    lanewise_softmax_kernel[(rows,)](
        x, out, cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, from the gradient dy of its result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    rows, cols = dy.shape
    block, warps = width_and_warps(cols, GRADIENT_COLUMNS, 512)
    softmax_gradient_kernel[(rows,)](
        dy, y, out, cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax with its gradient; y is all that backward needs."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
