# labs/lab4_production_slice/rms_norm_backward.py | two mistakes | (1) share has rstd once, sum(gx) * r / n_cols, but the term of dx needs r * r there. (2) The chunk is n_rows // CHUNKS rounded down with CHUNKS parts, so the last rows belong to no chunk and are missing in dweight where CHUNKS = 4 does not divide n_rows; it must be rounded up.
"""Gradients of RMSNorm with a fixed number of programs, each of which has every so many rows.

A program writes dx of its rows. A second launch splits rows into chunks that follow one another, and a third one
adds up the chunks.
"""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import block_of, on
from torch.library import triton_op

PROGRAMS = 8
CHUNKS = 4
WIDTH = tl.constexpr(64)


@triton.jit
def rows_kernel(
    dy_ptr, x_ptr, w_ptr, dx_ptr, scale_ptr, n_rows, n_cols, stride_dy, stride_x, stride_dx, eps, BLOCK: tl.constexpr
):
    lane = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64)
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        x_row = x_ptr + row * stride_x
        dx_row = dx_ptr + row * stride_dx
        xx = tl.zeros((BLOCK,), tl.float32)
        gx = tl.zeros((BLOCK,), tl.float32)
        for at in range(0, n_cols, BLOCK):
            ok = at + lane < n_cols
            x = tl.load(x_row + at + lane, mask=ok, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + at + lane, mask=ok, other=0.0).to(tl.float32)
            w = tl.load(w_ptr + at + lane, mask=ok, other=0.0).to(tl.float32)
            xx += x * x
            gx += dy * w * x
        r = 1.0 / tl.sqrt(tl.sum(xx, 0) / n_cols + tl.cast(eps, tl.float32))
        share = tl.sum(gx, 0) * r / n_cols
        tl.store(scale_ptr + row, r)
        for at in range(0, n_cols, BLOCK):
            ok = at + lane < n_cols
            x = tl.load(x_row + at + lane, mask=ok, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + at + lane, mask=ok, other=0.0).to(tl.float32)
            w = tl.load(w_ptr + at + lane, mask=ok, other=0.0).to(tl.float32)
            tl.store(dx_row + at + lane, (r * (dy * w - x * share)).to(dx_ptr.dtype.element_ty), mask=ok)
        row += tl.num_programs(0)


@triton.jit
def chunk_kernel(dy_ptr, x_ptr, scale_ptr, part_ptr, n_rows, n_cols, chunk, stride_dy, stride_x):
    cols = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    ok = cols < n_cols
    row = tl.program_id(1).to(tl.int64) * chunk
    end = tl.minimum(row + chunk, n_rows)
    acc = tl.zeros((WIDTH,), tl.float32)
    while row < end:
        x = tl.load(x_ptr + row * stride_x + cols, mask=ok, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=ok, other=0.0).to(tl.float32)
        acc += dy * (x * tl.load(scale_ptr + row))
        row += 1
    tl.store(part_ptr + tl.program_id(1) * n_cols + cols, acc, mask=ok)


@triton.jit
def join_kernel(part_ptr, dw_ptr, parts, n_cols):
    cols = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    acc = tl.zeros((WIDTH,), tl.float32)
    for k in range(parts):
        acc += tl.load(part_ptr + k * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(dw_ptr + cols, acc.to(dw_ptr.dtype.element_ty), mask=cols < n_cols)


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients for x and weight."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    scale = x.new_empty((n_rows,), dtype=torch.float32)
    on(rows_kernel, x)[(min(PROGRAMS, n_rows),)](
        dy, x, weight, dx, scale, n_rows, n_cols, dy.stride(0), x.stride(0), dx.stride(0), eps,
        BLOCK=min(1024, block_of(n_cols)),
    )  # fmt: skip
    chunk = max(1, n_rows // CHUNKS)
    parts = min(CHUNKS, n_rows)
    part = x.new_empty((parts, n_cols), dtype=torch.float32)
    blocks = triton.cdiv(n_cols, WIDTH)
    on(chunk_kernel, x)[(blocks, parts)](
        dy, x, scale, part, n_rows, n_cols, chunk, dy.stride(0), x.stride(0)
    )
    on(join_kernel, x)[(blocks,)](part, dweight, parts, n_cols)
    return dx, dweight


@triton_op("course::rms_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return rms_norm_backward(dy, x, weight, eps=eps)


class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx, dweight = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    return RMSNorm.apply(x, weight, eps)
