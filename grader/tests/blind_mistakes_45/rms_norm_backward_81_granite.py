# labs/lab4_production_slice/rms_norm_backward.py | contract | Skeleton rms_norm_backward.py. In `rms_norm_backward`, `dweight = torch.empty((n_cols,), device=x.device, dtype=sums.dtype)` allocates fp32, where a result that is not given must have the dtype of the inputs: `dtype=weight.dtype`. It shows for fp16 and bf16 where `dweight` is not given; the numbers are right.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator.

Two kernels: row_kernel finds two numbers for each row, and tile_kernel then has all that an element of dx needs,
so it adds up the gradient of the weight on the way.
"""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import column_sums, on
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
OF_ROWS = [triton.Config({"TALL": 4, "WIDE": 1024}, num_warps=8)]
OF_TILES = [triton.Config({"TALL": 16, "WIDE": 128}, num_warps=4)]
HEIGHT = 16  # TALL of OF_TILES


@triton.jit
def read(ptr, rows, cols, stride, inside):
    """Return a tile in fp32, 0 where there is no such element."""
    return tl.load(ptr + rows * stride + cols, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def read_vector(ptr, index, size):
    """Return elements of a vector in fp32, 0 past its end."""
    return tl.load(ptr + index, mask=index < size, other=0.0).to(tl.float32)


@triton.autotune(configs=OF_ROWS, key=["n_cols"])
@triton.jit
def row_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    rstd_ptr,
    slope_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    eps,
    TALL: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Store rstd and rstd * mean(g * n) of TALL rows, where g = dy * weight and n = x * rstd."""
    rows = tl.program_id(axis=0).to(tl.int64) * TALL + tl.arange(0, TALL)[:, None]
    squares = tl.zeros((TALL, WIDE), dtype=tl.float32)
    products = tl.zeros((TALL, WIDE), dtype=tl.float32)
    for start in range(0, n_cols, WIDE):
        cols = start + tl.arange(0, WIDE)[None, :]
        inside = (rows < n_rows) & (cols < n_cols)
        x = read(x_ptr, rows, cols, stride_x, inside)
        squares += x * x
        products += x * read(dy_ptr, rows, cols, stride_dy, inside) * read_vector(weight_ptr, cols, n_cols)
    variance = tl.sum(squares, axis=1, keep_dims=True) / n_cols
    rstd = tl.rsqrt(variance + tl.cast(eps, tl.float32))
    slope = rstd * rstd * (tl.sum(products, axis=1, keep_dims=True) / n_cols)
    tl.store(rstd_ptr + rows, rstd, mask=rows < n_rows)
    tl.store(slope_ptr + rows, slope, mask=rows < n_rows)


@triton.autotune(configs=OF_TILES, key=["n_cols"])
@triton.jit
def tile_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    rstd_ptr,
    slope_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    stride_dx,
    TALL: tl.constexpr,
    WIDE: tl.constexpr,
):
    """dx = rstd * g - n * slope for WIDE columns of a group of rows, and their sums of dy * n.

    Program (i, k) has group k: TALL rows, and as many again after those of all other groups.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)[None, :]
    weight = read_vector(weight_ptr, cols, n_cols)
    dweight = tl.zeros((TALL, WIDE), dtype=tl.float32)
    for start in range(group * TALL, n_rows, groups * TALL):
        rows = (start + tl.arange(0, TALL)[:, None]).to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        dy = read(dy_ptr, rows, cols, stride_dy, inside)
        rstd = read_vector(rstd_ptr, rows, n_rows)
        n = read(x_ptr, rows, cols, stride_x, inside) * rstd
        dx = rstd * (dy * weight) - n * read_vector(slope_ptr, rows, n_rows)
        tl.store(dx_ptr + rows * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        dweight += dy * n
    total = tl.sum(dweight, axis=0, keep_dims=True)
    tl.store(sums_ptr + group * n_cols + cols, total, mask=cols < n_cols)


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, HEIGHT))
    rstd, slope = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    if dx is None:
        dx = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    if dweight is None:
        dweight = torch.empty((n_cols,), device=x.device, dtype=sums.dtype)
    on(row_kernel, x)[lambda meta: (triton.cdiv(n_rows, meta["TALL"]),)](
        dy, x, weight, rstd, slope, n_rows, n_cols, dy.stride(0), x.stride(0), eps
    )
    on(tile_kernel, x)[lambda meta: (triton.cdiv(n_cols, meta["WIDE"]), groups)](
        dy, x, weight, dx, rstd, slope, sums, n_rows, n_cols, dy.stride(0), x.stride(0), dx.stride(0)
    )
    column_sums(sums, dweight)
    return dx, dweight


@triton_op("course::rms_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """rms_norm_backward as an operator that torch.compile can look into."""
    return rms_norm_backward(dy, x, weight, eps=eps)


class RMSNorm(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        """Return y for x."""
        y = rms_norm_op(x, weight, eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx and dweight for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        dx, dweight = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
