# labs/lab2_online_softmax/online_softmax.py | corner | OnlineSoftmax.backward: dy is made contiguous only if its row stride is 0, so a transposed gradient, one with every second column, or one expanded along the columns is read with wrong column addresses; must always be dy.contiguous().
"""Online softmax with a step function, and without masks where the block divides the row."""

import torch
import triton
import triton.language as tl

BLOCK_LIMIT = 16384
NEG_INF = tl.constexpr(float("-inf"))


@triton.jit
def read(ptr, offs, n_cols, fill, EVEN: tl.constexpr):
    if EVEN:
        v = tl.load(ptr + offs)
    else:
        v = tl.load(ptr + offs, mask=offs < n_cols, other=fill)
    return v.to(tl.float32)


@triton.jit
def write(ptr, offs, n_cols, v, EVEN: tl.constexpr):
    v = v.to(ptr.dtype.element_ty)
    if EVEN:
        tl.store(ptr + offs, v)
    else:
        tl.store(ptr + offs, v, mask=offs < n_cols)


@triton.jit
def step(m, d, x):
    """The recurrence: m and d after one more block."""
    higher = tl.maximum(m, tl.max(x, axis=0))
    pivot = tl.where(higher == NEG_INF, 0.0, higher)
    return higher, d * tl.exp(m - pivot) + tl.sum(tl.exp(x - pivot), axis=0)


@triton.jit
def fwd(x_ptr, y_ptr, n_cols, sx, sy, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * sx
    y_ptr += row * sy
    offs = tl.arange(0, BLOCK)
    x = read(x_ptr, offs, n_cols, NEG_INF, EVEN)
    m = tl.max(x, axis=0)
    d = tl.sum(tl.exp(x - tl.where(m == NEG_INF, 0.0, m)), axis=0)
    for start in range(BLOCK, n_cols, BLOCK):
        m, d = step(m, d, read(x_ptr, start + offs, n_cols, NEG_INF, EVEN))
    scale = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        x = read(x_ptr, start + offs, n_cols, NEG_INF, EVEN)
        write(y_ptr, start + offs, n_cols, tl.exp(x - m) * scale, EVEN)


@triton.jit
def bwd(dy_ptr, y_ptr, dx_ptr, n_cols, sdy, sy, sdx, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * sdy
    y_ptr += row * sy
    dx_ptr += row * sdx
    offs = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy = read(dy_ptr, start + offs, n_cols, 0.0, EVEN)
        y = read(y_ptr, start + offs, n_cols, 0.0, EVEN)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        dy = read(dy_ptr, start + offs, n_cols, 0.0, EVEN)
        y = read(y_ptr, start + offs, n_cols, 0.0, EVEN)
        write(dx_ptr, start + offs, n_cols, y * (dy - s), EVEN)


def options(n_cols, per_warp):
    block = min(triton.next_power_of_2(n_cols), BLOCK_LIMIT)
    return {"BLOCK": block, "EVEN": n_cols % block == 0, "num_warps": min(16, max(1, block // per_warp))}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    fwd[(x.shape[0],)](x, out, x.shape[1], x.stride(0), out.stride(0), **options(x.shape[1], 1024))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    bwd[(n_rows,)](dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **options(n_cols, 512))
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        # sum() hands over an expanded gradient
        if dy.stride(0) == 0:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
