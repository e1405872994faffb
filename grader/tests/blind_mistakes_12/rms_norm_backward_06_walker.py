# labs/lab4_production_slice/rms_norm_backward.py | contract | without dweight the function allocates and returns an fp32 vector, it must have the dtype of the inputs: shows in fp16 and bf16 where no dweight is passed; the numbers are right, and fp32 and a given dweight are right
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

TILE_ROWS, TILE_COLS = 8, 128


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, rstd_ptr, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row for each program, pointers that walk along the row."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx

    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    cols = tl.arange(0, BLOCK)
    for _start in range(0, N_COLS, BLOCK):
        x = load(x_row, cols, N_COLS)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        squares += x * x
        products += g * x
        cols += BLOCK

    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    mean_gn = tl.sum(products, axis=0) / N_COLS * rstd
    tl.store(rstd_ptr + row, rstd)

    cols = tl.arange(0, BLOCK)
    for _start in range(0, N_COLS, BLOCK):
        n = load(x_row, cols, N_COLS) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, (g - mean_gn * n) * rstd)
        cols += BLOCK


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """Program (i, k) adds dy * n over the tiles k, k + groups, k + 2 groups, ... of ROWS rows."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    rows = group * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    tiles = (n_rows + ROWS - 1) // ROWS
    for _tile in range(group, tiles, groups):
        exists = rows < n_rows
        inside = exists[:, None] & (cols < n_cols)[None, :]
        far = rows.to(tl.int64)[:, None]
        dy = tl.load(dy_ptr + far * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + far * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=exists, other=0.0)
        total += dy * (x * rstd[:, None])
        rows += groups * ROWS
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(total, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    n_rows, n_cols = x.shape
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        # a sum over all rows, so in full precision
        dweight = torch.empty((n_cols,), device=x.device, dtype=torch.float32)
    groups = min(40, triton.cdiv(n_rows, TILE_ROWS))
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, TILE_COLS), groups)](
        dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0), ROWS=TILE_ROWS, COLS=TILE_COLS
    )
    column_sums(sums, dweight)
    return dx, dweight


@triton_op("course::rms_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """rms_norm_backward as an operator that torch.compile can look into."""
    dweight = torch.empty_like(weight)
    return rms_norm_backward(dy, x, weight, eps=eps, dweight=dweight)


class RMSNorm(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        """Return y for x."""
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx and dweight for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
