# labs/lab2_online_softmax/online_softmax.py | corner | In online_softmax_kernel (forward) the sum `total` is kept relative to `ref`, which moves only when a chunk rises more than 8 above it, but the second loop normalises with the true maximum: `tl.exp(v - top) / total`. It should be `tl.exp(v - ref) / total`. Shows only in rows of more than one chunk (n_cols > 4096) where a later chunk raises the maximum by at most 8 over ref (normal values in long rows, ascending rows): the row is too small by the factor exp(ref - top) and sums to less than 1. Right for rows of up to 4096 columns, and where the maximum is in the chunk that set ref (descending, rises of more than 8).
"""Online softmax over rows, its gradient, and both for autograd."""

import torch
import triton
import triton.language as tl

CHUNK = 4096  # columns that a program holds at a time
SLACK = 8.0  # exp(8) times 131072 columns is far from the end of fp32


@triton.jit
def online_softmax_kernel(
    src,
    dst,
    width,
    src_pitch,
    dst_pitch,
    CHUNK: tl.constexpr,
    SLACK: tl.constexpr,
):
    """One row per program.

    The sum is kept relative to `ref`. Most chunks raise the maximum a little or not at all, so `ref` follows only
    when a chunk lies more than SLACK above it; a smaller rise costs no rescaling, and exp stays below exp(SLACK).
    """
    row = tl.program_id(0).to(tl.int64)
    src += row * src_pitch
    dst += row * dst_pitch
    lanes = tl.arange(0, CHUNK)

    ref = -float("inf")
    top = -float("inf")
    total = 0.0
    for at in range(0, width, CHUNK):
        inside = at + lanes < width
        v = tl.load(src + at + lanes, mask=inside, other=-float("inf")).to(tl.float32)
        peak = tl.max(v, axis=0)
        if peak > ref + SLACK:
            total *= tl.exp(ref - peak)
            ref = peak
        top = tl.maximum(top, peak)
        # Nothing but -inf so far: any finite shift will do.
        shift = tl.where(top == -float("inf"), 0.0, ref)
        total += tl.sum(tl.exp(v - shift), axis=0)

    for at in range(0, width, CHUNK):
        inside = at + lanes < width
        v = tl.load(src + at + lanes, mask=inside, other=-float("inf")).to(tl.float32)
        share = tl.exp(v - top) / total
        tl.store(dst + at + lanes, share.to(dst.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_kernel(
    grad,
    prob,
    dst,
    width,
    grad_pitch,
    prob_pitch,
    dst_pitch,
    CHUNK: tl.constexpr,
):
    """One row per program; every lane collects its own products, and they are added up once at the end."""
    row = tl.program_id(0).to(tl.int64)
    grad += row * grad_pitch
    prob += row * prob_pitch
    dst += row * dst_pitch
    lanes = tl.arange(0, CHUNK)

    products = tl.zeros([CHUNK], dtype=tl.float32)
    for at in range(0, width, CHUNK):
        inside = at + lanes < width
        g = tl.load(grad + at + lanes, mask=inside, other=0.0).to(tl.float32)
        p = tl.load(prob + at + lanes, mask=inside, other=0.0).to(tl.float32)
        products += g * p
    dot = tl.sum(products, axis=0)

    for at in range(0, width, CHUNK):
        inside = at + lanes < width
        g = tl.load(grad + at + lanes, mask=inside, other=0.0).to(tl.float32)
        p = tl.load(prob + at + lanes, mask=inside, other=0.0).to(tl.float32)
        tl.store(dst + at + lanes, (p * (g - dot)).to(dst.dtype.element_ty), mask=inside)


def chunk_and_warps(width: int) -> tuple:
    """Chunk width for rows of this width, and warps with 16 elements for each of their threads."""
    chunk = min(triton.next_power_of_2(width), CHUNK)
    return chunk, min(max(chunk // 512, 1), 8)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of every row of x, written to `out` if there is one."""
    height, width = x.shape
    y = torch.empty((height, width), dtype=x.dtype, device=x.device) if out is None else out
    chunk, warps = chunk_and_warps(width)
    online_softmax_kernel[(height,)](
        x, y, width, x.stride(0), y.stride(0), CHUNK=chunk, SLACK=SLACK, num_warps=warps
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of the rows, from that of the result and the result itself, written to `out` if there is one."""
    height, width = dy.shape
    dx = torch.empty((height, width), dtype=dy.dtype, device=dy.device) if out is None else out
    chunk, warps = chunk_and_warps(width)
    softmax_backward_kernel[(height,)](
        dy, y, dx, width, dy.stride(0), y.stride(0), dx.stride(0), CHUNK=chunk, num_warps=warps
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
    """Ties the two together."""

    @staticmethod
    def forward(ctx, x):
        """y; it is all that backward needs."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx; the kernel wants neighbouring columns, whatever autograd brings."""
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax of every row of x, with a gradient."""
    return OnlineSoftmax.apply(x)
