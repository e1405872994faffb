# labs/lab2_online_softmax/online_softmax.py | corner | In online_softmax_kernel x is multiplied by log2(e) right after the load, before the maximum is subtracted, so the product is rounded at the size of x; it must be (x - max) * log2(e). Shown by large values (hundreds and more) in fp32; small values and fp16 are within the tolerance.
import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096
LOG2E = tl.constexpr(1.4426950408889634)
NEG_INF = tl.constexpr(float("-inf"))


@triton.jit
def online_softmax_kernel(input_ptr, output_ptr, n_cols, input_row_stride, output_row_stride, BLOCK: tl.constexpr):
    # base-2 exponentials throughout: exp(v) == exp2(v * log2(e))
    row_idx = tl.program_id(0).to(tl.int64)
    input_row = input_ptr + row_idx * input_row_stride
    output_row = output_ptr + row_idx * output_row_stride
    lane = tl.arange(0, BLOCK)

    running_max = NEG_INF
    running_sum = 0.0
    for off in tl.range(0, n_cols, BLOCK):
        vals = tl.load(input_row + off + lane, mask=off + lane < n_cols, other=NEG_INF).to(tl.float32) * LOG2E
        new_max = tl.maximum(running_max, tl.max(vals))
        # everything so far may still be -inf
        safe = tl.where(new_max > NEG_INF, new_max, 0.0)
        running_sum *= tl.exp2(running_max - safe)
        running_sum += tl.sum(tl.exp2(vals - safe))
        running_max = new_max

    scale = 1.0 / running_sum
    for off in tl.range(0, n_cols, BLOCK):
        vals = tl.load(input_row + off + lane, mask=off + lane < n_cols, other=NEG_INF).to(tl.float32) * LOG2E
        probs = tl.exp2(vals - running_max) * scale
        tl.store(output_row + off + lane, probs.to(output_ptr.dtype.element_ty), mask=off + lane < n_cols)


@triton.jit
def softmax_backward_kernel(
    grad_ptr, prob_ptr, res_ptr, n_cols, grad_row_stride, prob_row_stride, res_row_stride, BLOCK: tl.constexpr
):
    row_idx = tl.program_id(0).to(tl.int64)
    grad_ptr += row_idx * grad_row_stride
    prob_ptr += row_idx * prob_row_stride
    res_ptr += row_idx * res_row_stride
    lane = tl.arange(0, BLOCK)

    dot = tl.zeros([BLOCK], dtype=tl.float32)
    for off in tl.range(0, n_cols, BLOCK):
        keep = off + lane < n_cols
        g = tl.load(grad_ptr + off + lane, mask=keep, other=0.0).to(tl.float32)
        p = tl.load(prob_ptr + off + lane, mask=keep, other=0.0).to(tl.float32)
        dot += g * p
    row_dot = tl.sum(dot)

    for off in tl.range(0, n_cols, BLOCK):
        keep = off + lane < n_cols
        g = tl.load(grad_ptr + off + lane, mask=keep, other=0.0).to(tl.float32)
        p = tl.load(prob_ptr + off + lane, mask=keep, other=0.0).to(tl.float32)
        tl.store(res_ptr + off + lane, ((g - row_dot) * p).to(res_ptr.dtype.element_ty), mask=keep)


def softmax_forward(x, *, out=None):
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.shape
    width = min(FORWARD_BLOCK, triton.next_power_of_2(cols))
    warps = 8 if width > 4096 else 4
    online_softmax_kernel[(rows,)](x, out, cols, x.stride(0), out.stride(0), width, num_warps=warps)
    return out


def softmax_backward(dy, y, *, out=None):
    out = torch.empty_like(dy) if out is None else out
    rows, cols = y.shape
    width = min(BACKWARD_BLOCK, triton.next_power_of_2(cols))
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    softmax_backward_kernel[(rows,)](dy, y, out, cols, *strides, BLOCK=width, num_warps=8)
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        probs = softmax_forward(x)
        ctx.save_for_backward(probs)
        return probs

    @staticmethod
    def backward(ctx, dy):
        return softmax_backward(dy.contiguous(), *ctx.saved_tensors)


def softmax(x):
    return OnlineSoftmax.apply(x)
