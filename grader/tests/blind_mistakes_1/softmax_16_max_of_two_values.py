# lab2/online_softmax.py | error | softmax_fwd_kernel: tl.max(row_max, tl.max(x, axis=0)) is used like Python's max for two values; tl.max reduces a block and takes the axis as second argument (tl.maximum is meant) | "tl.max and tl.sum reduce a block, tl.maximum compares two values"; softmax_forward and softmax() always raise, softmax_backward called alone is right
import torch
import triton
import triton.language as tl


@triton.jit
def softmax_fwd_kernel(
    input_ptr,
    output_ptr,
    n_cols,
    input_row_stride,
    output_row_stride,
    BLOCK_SIZE: tl.constexpr,
):
    row_idx = tl.program_id(0).to(tl.int64)
    in_row = input_ptr + row_idx * input_row_stride
    out_row = output_ptr + row_idx * output_row_stride
    row_max = -float("inf")
    denom = 0.0
    for off in range(0, n_cols, BLOCK_SIZE):
        col = off + tl.arange(0, BLOCK_SIZE)
        x = tl.load(in_row + col, mask=col < n_cols, other=-float("inf")).to(tl.float32)
        new_max = tl.max(row_max, tl.max(x, axis=0))
        ref = tl.where(new_max == -float("inf"), 0.0, new_max)
        denom = denom * tl.exp(row_max - ref) + tl.sum(tl.exp(x - ref), axis=0)
        row_max = new_max
    for off in range(0, n_cols, BLOCK_SIZE):
        col = off + tl.arange(0, BLOCK_SIZE)
        x = tl.load(in_row + col, mask=col < n_cols, other=-float("inf")).to(tl.float32)
        softmax_output = tl.exp(x - row_max) / denom
        tl.store(out_row + col, softmax_output, mask=col < n_cols)


@triton.jit
def softmax_bwd_kernel(
    grad_ptr,
    output_ptr,
    grad_input_ptr,
    n_cols,
    grad_row_stride,
    output_row_stride,
    grad_input_row_stride,
    BLOCK_SIZE: tl.constexpr,
):
    row_idx = tl.program_id(0).to(tl.int64)
    dot = 0.0
    for off in range(0, n_cols, BLOCK_SIZE):
        col = off + tl.arange(0, BLOCK_SIZE)
        g = tl.load(grad_ptr + row_idx * grad_row_stride + col, mask=col < n_cols, other=0.0).to(tl.float32)
        y = tl.load(output_ptr + row_idx * output_row_stride + col, mask=col < n_cols, other=0.0).to(tl.float32)
        dot += tl.sum(g * y, axis=0)
    for off in range(0, n_cols, BLOCK_SIZE):
        col = off + tl.arange(0, BLOCK_SIZE)
        g = tl.load(grad_ptr + row_idx * grad_row_stride + col, mask=col < n_cols, other=0.0).to(tl.float32)
        y = tl.load(output_ptr + row_idx * output_row_stride + col, mask=col < n_cols, other=0.0).to(tl.float32)
        tl.store(grad_input_ptr + row_idx * grad_input_row_stride + col, y * (g - dot), mask=col < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    BLOCK_SIZE = min(16384, triton.next_power_of_2(n_cols))
    softmax_fwd_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK_SIZE=BLOCK_SIZE)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    BLOCK_SIZE = min(16384, triton.next_power_of_2(n_cols))
    softmax_bwd_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK_SIZE=BLOCK_SIZE, num_warps=16
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """The two functions above, tied together."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
