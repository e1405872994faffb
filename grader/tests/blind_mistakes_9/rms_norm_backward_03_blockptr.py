# labs/lab4_production_slice/rms_norm_backward.py | wrong everywhere | dx is taken over from LayerNorm: `dx = rstd * (g - mean_g - n * mean_gn)` still subtracts mean(g), which comes from the mean that RMSNorm does not have; it must be rstd * (g - n * mean_gn). dx is wrong in every row whose mean of g is not 0, dweight is right
"""The gradients of RMSNorm with block pointers."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, on
from torch.library import triton_op


@triton.jit
def strip(base, n_rows, n_cols, stride, row, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, col):
    """A block pointer to HEIGHT x WIDTH numbers of a matrix, from (row, col) on."""
    return tl.make_block_ptr(base, (n_rows, n_cols), (stride, 1), (row, col), (HEIGHT, WIDTH), (1, 0))


@triton.jit
def fetch(pointer):
    return tl.load(pointer, boundary_check=(0, 1), padding_option="zero").to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, w_ptr, dx_ptr, rstd_ptr, n_rows, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    dy_at = strip(dy_ptr, n_rows, N_COLS, stride_dy, row, 1, BLOCK, 0)
    x_at = strip(x_ptr, n_rows, N_COLS, stride_x, row, 1, BLOCK, 0)
    w_at = strip(w_ptr, 1, N_COLS, N_COLS, 0, 1, BLOCK, 0)
    dx_at = strip(dx_ptr, n_rows, N_COLS, stride_dx, row, 1, BLOCK, 0)
    squares = tl.zeros((1, BLOCK), dtype=tl.float32)
    gs = tl.zeros((1, BLOCK), dtype=tl.float32)
    gxs = tl.zeros((1, BLOCK), dtype=tl.float32)
    for k in range(0, N_COLS, BLOCK):
        x = fetch(tl.advance(x_at, (0, k)))
        g = fetch(tl.advance(dy_at, (0, k))) * fetch(tl.advance(w_at, (0, k)))
        squares += x * x
        gs += g
        gxs += g * x
    rstd = tl.rsqrt(tl.sum(squares) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    mean_g = tl.sum(gs) / N_COLS
    mean_gn = tl.sum(gxs) * rstd / N_COLS
    for k in range(0, N_COLS, BLOCK):
        n = fetch(tl.advance(x_at, (0, k))) * rstd
        g = fetch(tl.advance(dy_at, (0, k))) * fetch(tl.advance(w_at, (0, k)))
        dx = rstd * (g - mean_g - n * mean_gn)
        tl.store(tl.advance(dx_at, (0, k)), dx.to(dx_ptr.dtype.element_ty), boundary_check=(0, 1))


@triton.jit
def dweight_kernel(
    dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(1)
    groups = tl.num_programs(1)
    col = tl.program_id(0) * WIDTH
    acc = tl.zeros((HEIGHT, WIDTH), dtype=tl.float32)
    for row in range(group * HEIGHT, n_rows, groups * HEIGHT):
        dy = fetch(strip(dy_ptr, n_rows, n_cols, stride_dy, row, HEIGHT, WIDTH, col))
        x = fetch(strip(x_ptr, n_rows, n_cols, stride_x, row, HEIGHT, WIDTH, col))
        rstd = fetch(strip(rstd_ptr, n_rows, 1, 1, row, HEIGHT, 1, 0))
        acc += dy * x * rstd
    total = tl.sum(acc, axis=0)[None, :]
    tl.store(strip(sums_ptr, groups, n_cols, n_cols, group, 1, WIDTH, col), total, boundary_check=(0, 1))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, n_rows, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    groups = min(32, triton.cdiv(n_rows, 16))
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    on(dweight_kernel, x)[(triton.cdiv(n_cols, 128), groups)](
        dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0), HEIGHT=16, WIDTH=128
    )
    column_sums(sums, dweight)
    return dx, dweight


@triton_op("course::rms_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return rms_norm_backward(dy, x, weight, eps=eps)


class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        ctx.eps = eps
        ctx.save_for_backward(x, weight)
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    return RMSNorm.apply(x, weight, eps)
