# labs/lab2_online_softmax/online_softmax.py | corner | softmax_backward allocates torch.empty_like(dy); autograd's dy goes there in its own layout, and for a transposed dy empty_like keeps the transposed strides, while gradient_rows stores dx with contiguous columns: rows overlap and the gradient of softmax() is wrong for a transposed gradient only. It should be contiguous, as torch.empty_like(y) or memory_format=torch.contiguous_format.
"""Softmax with a limited number of programs, each of which walks over many rows."""

import torch
import triton
import triton.language as tl

PROGRAMS = 1056  # 8 for each multiprocessor of an H200

CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=2),
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 4096}, num_warps=4),
    triton.Config({"BLOCK": 8192}, num_warps=8),
]


@triton.autotune(configs=CONFIGS, key=["n_cols"])
@triton.jit
def softmax_rows(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        peak = -float("inf")
        mass = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            before = peak
            peak = tl.maximum(before, tl.max(x, axis=0))
            shift = tl.where(peak == -float("inf"), 0.0, peak)
            mass = mass * tl.exp(before - shift) + tl.sum(tl.exp(x - shift), axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            tl.store(y_row + cols, (tl.exp(x - peak) / mass).to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


@triton.autotune(configs=CONFIGS, key=["n_cols"])
@triton.jit
def gradient_rows(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    dy_row_stride,
    dy_col_stride,  # autograd's gradient may have any layout
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        dy_row = dy_ptr + row * dy_row_stride
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            places = cols.to(tl.int64) * dy_col_stride
            dy = tl.load(dy_row + places, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            s += tl.sum(dy * y, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            places = cols.to(tl.int64) * dy_col_stride
            dy = tl.load(dy_row + places, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    softmax_rows[(min(n_rows, PROGRAMS),)](x, out, n_rows, n_cols, x.stride(0), out.stride(0))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    gradient_rows[(min(n_rows, PROGRAMS),)](
        dy, y, out, n_rows, n_cols, dy.stride(0), dy.stride(1), y.stride(0), out.stride(0)
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        # no copy: the kernel is given both strides of dy
        y = ctx.saved_tensors[0]
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
