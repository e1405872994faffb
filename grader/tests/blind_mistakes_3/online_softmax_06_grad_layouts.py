# labs/lab2_online_softmax/online_softmax.py | corner | OnlineSoftmax.backward: only an expanded gradient (a stride of 0) is made contiguous, so a transposed one or one with every second column of a wider matrix is read as if its columns lay side by side; the condition must be grad.stride(1) != 1, or always grad.contiguous().
import torch
import triton
import triton.language as tl

BLOCK = 8192


@triton.jit
def softmax_fwd(inp, res, n_cols, inp_stride, res_stride, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    inp += r * inp_stride
    res += r * res_stride
    biggest = -float("inf")
    total = 0.0
    for c0 in range(0, n_cols, BLOCK):
        c = c0 + tl.arange(0, BLOCK)
        v = tl.load(inp + c, mask=c < n_cols, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
        bigger = tl.maximum(biggest, tl.max(v, axis=0))
        shift = tl.where(bigger == -float("inf"), 0.0, bigger)
        total = total * tl.exp(biggest - shift) + tl.sum(tl.exp(v - shift), axis=0)
        biggest = bigger
    for c0 in range(0, n_cols, BLOCK):
        c = c0 + tl.arange(0, BLOCK)
        v = tl.load(inp + c, mask=c < n_cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(res + c, (tl.exp(v - biggest) / total).to(res.dtype.element_ty), mask=c < n_cols)


@triton.jit
def softmax_bwd(grad, res, dinp, n_cols, grad_stride, res_stride, dinp_stride, BLOCK: tl.constexpr):
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
    softmax_fwd[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(BLOCK, triton.next_power_of_2(n_cols))
    softmax_bwd[(n_rows,)](
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
        if 0 in grad.stride():
            grad = grad.contiguous()
        return softmax_backward(grad, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
