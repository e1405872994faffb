# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | fwd_kernel, between the loops: the block pointer src is not set back to the start of the row, so the second loop loads behind the row; it must be made anew before the second loop.
"""Lab 2 with block pointers: one block pointer per tensor, advanced by BLOCK columns."""

import torch
import triton
import triton.language as tl

WIDEST = 16384


@triton.jit
def row_block(base, n_cols, BLOCK: tl.constexpr):
    return tl.make_block_ptr(base, shape=(n_cols,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,))


@triton.jit
def fwd_kernel(inp, result, n_cols, inp_stride, result_stride, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    src = row_block(inp + pid * inp_stride, n_cols, BLOCK)
    running_max = -float("inf")
    running_sum = 0.0
    for i in range(0, tl.cdiv(n_cols, BLOCK)):
        v = tl.load(src, boundary_check=(0,)).to(tl.float32)
        v = tl.where(lane < n_cols - i * BLOCK, v, -float("inf"))
        top = tl.maximum(running_max, tl.max(v, 0))
        safe = tl.where(top == -float("inf"), 0.0, top)
        running_sum = running_sum * tl.exp(running_max - safe) + tl.sum(tl.exp(v - safe), 0)
        running_max = top
        src = tl.advance(src, (BLOCK,))

    dst = row_block(result + pid * result_stride, n_cols, BLOCK)
    for i in range(0, tl.cdiv(n_cols, BLOCK)):
        v = tl.load(src, boundary_check=(0,)).to(tl.float32)
        p = tl.exp(v - running_max) / running_sum
        tl.store(dst, p.to(result.dtype.element_ty), boundary_check=(0,))
        src = tl.advance(src, (BLOCK,))
        dst = tl.advance(dst, (BLOCK,))


@triton.jit
def bwd_kernel(grad, prob, result, n_cols, grad_stride, prob_stride, result_stride, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    g_ptr = row_block(grad + pid * grad_stride, n_cols, BLOCK)
    p_ptr = row_block(prob + pid * prob_stride, n_cols, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for _ in range(0, n_cols, BLOCK):
        g = tl.load(g_ptr, boundary_check=(0,), padding_option="zero").to(tl.float32)
        p = tl.load(p_ptr, boundary_check=(0,), padding_option="zero").to(tl.float32)
        acc += g * p
        g_ptr = tl.advance(g_ptr, (BLOCK,))
        p_ptr = tl.advance(p_ptr, (BLOCK,))
    dot = tl.sum(acc, 0)

    g_ptr = row_block(grad + pid * grad_stride, n_cols, BLOCK)
    p_ptr = row_block(prob + pid * prob_stride, n_cols, BLOCK)
    o_ptr = row_block(result + pid * result_stride, n_cols, BLOCK)
    for _ in range(0, n_cols, BLOCK):
        g = tl.load(g_ptr, boundary_check=(0,), padding_option="zero").to(tl.float32)
        p = tl.load(p_ptr, boundary_check=(0,), padding_option="zero").to(tl.float32)
        tl.store(o_ptr, (p * (g - dot)).to(result.dtype.element_ty), boundary_check=(0,))
        g_ptr = tl.advance(g_ptr, (BLOCK,))
        p_ptr = tl.advance(p_ptr, (BLOCK,))
        o_ptr = tl.advance(o_ptr, (BLOCK,))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    result = torch.empty_like(x) if out is None else out
    rows, cols = x.shape
    width = min(WIDEST, triton.next_power_of_2(cols))
    fwd_kernel[(rows,)](
        x, result, cols, x.stride(0), result.stride(0), BLOCK=width, num_warps=min(8, max(1, width // 1024))
    )
    return result


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    result = torch.empty_like(dy) if out is None else out
    rows, cols = dy.shape
    width = min(WIDEST, triton.next_power_of_2(cols))
    bwd_kernel[(rows,)](
        dy, y, result, cols, dy.stride(0), y.stride(0), result.stride(0),
        BLOCK=width, num_warps=min(32, max(4, width // 512)),
    )  # fmt: skip
    return result


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        probabilities = softmax_forward(x)
        ctx.save_for_backward(probabilities)
        return probabilities

    @staticmethod
    def backward(ctx, dy):
        (probabilities,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), probabilities)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
