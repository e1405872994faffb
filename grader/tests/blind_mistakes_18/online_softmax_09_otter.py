# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax and its gradient with a fixed number of programs: each takes every n-th row."""

import torch
import triton
import triton.language as tl

WIDEST = 8192
MOST_PROGRAMS = 4096


@triton.jit
def read_scores(row_ptr, first, n_cols, WIDTH: tl.constexpr):
    """One block of a row; lanes past its end are -inf, which adds nothing to a sum of exp."""
    where = first + tl.arange(0, WIDTH)
    return tl.load(row_ptr + where, mask=where < n_cols, other=-float("inf")).to(tl.float32)


@triton.jit
def read_terms(row_ptr, first, n_cols, WIDTH: tl.constexpr):
    """One block of a row; lanes past its end are 0."""
    where = first + tl.arange(0, WIDTH)
    return tl.load(row_ptr + where, mask=where < n_cols, other=0.0).to(tl.float32)


@triton.jit
def write(row_ptr, first, n_cols, values, WIDTH: tl.constexpr):
    where = first + tl.arange(0, WIDTH)
    tl.store(row_ptr + where, values.to(row_ptr.dtype.element_ty), mask=where < n_cols)


@triton.jit
def softmax_rows(x_ptr, y_ptr, n_rows, n_cols, x_step, y_step, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * x_step
        y_row = y_ptr + row * y_step

        # Below every finite score, and finite: the differences below are never -inf - -inf.
        largest = -3.0e38
        total = 0.0
        for first in range(0, n_cols, WIDTH):
            scores = read_scores(x_row, first, n_cols, WIDTH)
            grown = tl.maximum(largest, tl.max(scores, axis=0))
            total = total * tl.exp(largest - grown) + tl.sum(tl.exp(scores - grown), axis=0)
            largest = grown

        for first in range(0, n_cols, WIDTH):
            scores = read_scores(x_row, first, n_cols, WIDTH)
            write(y_row, first, n_cols, tl.exp(scores - largest) / total, WIDTH)

        row += tl.num_programs(0)


@triton.jit
def gradient_rows(dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, dy_step, y_step, dx_step, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    while row < n_rows:
        dy_row = dy_ptr + row * dy_step
        y_row = y_ptr + row * y_step
        dx_row = dx_ptr + row * dx_step

        mean = 0.0  # of dy, weighted with y
        for first in range(0, n_cols, WIDTH):
            weights = read_terms(y_row, first, n_cols, WIDTH)
            mean += tl.sum(weights * read_terms(dy_row, first, n_cols, WIDTH), axis=0)

        for first in range(0, n_cols, WIDTH):
            weights = read_terms(y_row, first, n_cols, WIDTH)
            centred = read_terms(dy_row, first, n_cols, WIDTH) - mean
            write(dx_row, first, n_cols, weights * centred, WIDTH)

        row += tl.num_programs(0)


def plan(n_rows: int, n_cols: int):
    """Grid, block width and warps for a matrix."""
    width = min(WIDEST, triton.next_power_of_2(n_cols))
    warps = 1
    while warps < 16 and warps * 512 < width:
        warps *= 2
    return (min(n_rows, MOST_PROGRAMS),), width, warps


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grid, width, warps = plan(x.size(0), x.size(1))
    softmax_rows[grid](
        x, out, x.size(0), x.size(1), x.stride(0), out.stride(0), WIDTH=width, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    grid, width, warps = plan(y.size(0), y.size(1))
    gradient_rows[grid](
        dy,
        y,
        out,
        y.size(0),
        y.size(1),
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        WIDTH=width,
        num_warps=warps,
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
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
