# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) forward_rows: the sum of a block is taken relative to the block's own maximum (here), also where the running peak is higher, so rows longer than a block (1024) are wrong; it must be exp(v - peak). (2) OnlineSoftmax.backward: the arguments are swapped, softmax_backward takes (dy, y).
import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def forward_rows(inp, res, n_cols, inp_stride, res_stride, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    inp += r * inp_stride
    res += r * res_stride
    peak = -float("inf")
    norm = 0.0
    for c0 in range(0, n_cols, BLOCK):
        c = c0 + tl.arange(0, BLOCK)
        v = tl.load(inp + c, mask=c < n_cols, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
        here = tl.max(v, axis=0)
        # the rescaling is needed only if the maximum has changed
        if here > peak:
            norm *= tl.exp(peak - here)
            peak = here
        if here > -float("inf"):
            norm += tl.sum(tl.exp(v - here), axis=0)
    for c0 in range(0, n_cols, BLOCK):
        c = c0 + tl.arange(0, BLOCK)
        v = tl.load(inp + c, mask=c < n_cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(res + c, (tl.exp(v - peak) / norm).to(res.dtype.element_ty), mask=c < n_cols)


@triton.jit
def backward_rows(grad, res, dinp, n_cols, grad_stride, res_stride, dinp_stride, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    grad += r * grad_stride
    res += r * res_stride
    dinp += r * dinp_stride
    mean = 0.0
    for c0 in range(0, n_cols, BLOCK):
        c = c0 + tl.arange(0, BLOCK)
        g = tl.load(grad + c, mask=c < n_cols, other=0.0).to(tl.float32)
        p = tl.load(res + c, mask=c < n_cols, other=0.0).to(tl.float32)
        mean += tl.sum(g * p, axis=0)
    for c0 in range(0, n_cols, BLOCK):
        c = c0 + tl.arange(0, BLOCK)
        g = tl.load(grad + c, mask=c < n_cols, other=0.0).to(tl.float32)
        p = tl.load(res + c, mask=c < n_cols, other=0.0).to(tl.float32)
        tl.store(dinp + c, (p * (g - mean)).to(dinp.dtype.element_ty), mask=c < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(BLOCK, triton.next_power_of_2(n_cols))
    forward_rows[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(BLOCK, triton.next_power_of_2(n_cols))
    backward_rows[(n_rows,)](
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
        return softmax_backward(y, grad.contiguous())


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
