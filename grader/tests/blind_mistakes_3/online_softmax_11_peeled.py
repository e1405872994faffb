# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) peeled_forward: the first block, before the loop, has no guard for -inf: if its columns are all -inf, -inf - -inf makes total NaN for good; the shift must be 0 there, as in the loop. (2) peeled_backward, first loop: dot = tl.sum(...) keeps only the last block's sum, wrong for rows longer than 512; it must be dot += tl.sum(...).
import torch
import triton
import triton.language as tl

BLOCK = 512


@triton.jit
def peeled_forward(inp, res, n_cols, sx, sy, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    inp += r * sx
    res += r * sy
    # the first block gives the start values
    c = tl.arange(0, BLOCK)
    v = tl.load(inp + c, mask=c < n_cols, other=-float("inf")).to(tl.float32)
    mx = tl.max(v, axis=0)
    total = tl.sum(tl.exp(v - mx), axis=0)
    for c0 in range(BLOCK, n_cols, BLOCK):
        c = c0 + tl.arange(0, BLOCK)
        v = tl.load(inp + c, mask=c < n_cols, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
        mx_new = tl.maximum(mx, tl.max(v, axis=0))
        shift = tl.where(mx_new == -float("inf"), 0.0, mx_new)
        total = total * tl.exp(mx - shift) + tl.sum(tl.exp(v - shift), axis=0)
        mx = mx_new
    for c0 in range(0, n_cols, BLOCK):
        c = c0 + tl.arange(0, BLOCK)
        v = tl.load(inp + c, mask=c < n_cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(res + c, (tl.exp(v - mx) / total).to(res.dtype.element_ty), mask=c < n_cols)


@triton.jit
def peeled_backward(grad, res, dinp, n_cols, grad_stride, sy, dsx, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    grad += r * grad_stride
    res += r * sy
    dinp += r * dsx
    dot = 0.0
    for c0 in range(0, n_cols, BLOCK):
        c = c0 + tl.arange(0, BLOCK)
        g = tl.load(grad + c, mask=c < n_cols, other=0.0).to(tl.float32)
        p = tl.load(res + c, mask=c < n_cols, other=0.0).to(tl.float32)
        dot = tl.sum(g * p, axis=0)
    for c0 in range(0, n_cols, BLOCK):
        c = c0 + tl.arange(0, BLOCK)
        g = tl.load(grad + c, mask=c < n_cols, other=0.0).to(tl.float32)
        p = tl.load(res + c, mask=c < n_cols, other=0.0).to(tl.float32)
        tl.store(dinp + c, (p * (g - dot)).to(dinp.dtype.element_ty), mask=c < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(BLOCK, triton.next_power_of_2(n_cols))
    peeled_forward[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(BLOCK, triton.next_power_of_2(n_cols))
    peeled_backward[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        # e.g. from sum(): avoid the copy otherwise
        if grad.stride(1) != 1:
            grad = grad.contiguous()
        return softmax_backward(grad, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
