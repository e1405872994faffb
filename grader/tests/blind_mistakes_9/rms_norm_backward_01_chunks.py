# labs/lab4_production_slice/rms_norm_backward.py | corner | a group has `chunk` consecutive rows and takes them 16 at a time, but the mask of `weight_sums` is `rows < n_rows` where it must be `rows < last`, the end of the chunk: the last tile also adds rows of the next group, which are counted twice. dweight is wrong where there is more than one group (over 16 rows) and chunk is no multiple of 16; right up to 16 rows and for multiples of 512
"""The gradients of RMSNorm; dweight from consecutive chunks of rows."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

MOST_CHUNKS = 32
DEPTH = tl.constexpr(16)
BREADTH = tl.constexpr(128)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_rows(
    dy_ptr, x_ptr, w_ptr, dx_ptr, rstd_ptr, s_dy, s_x, s_dx, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * s_dy
    x_row = x_ptr + row * s_x
    lanes = tl.arange(0, BLOCK)
    xx = tl.zeros((BLOCK,), dtype=tl.float32)
    gx = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in range(0, N_COLS, BLOCK):
        x = load(x_row, k + lanes, N_COLS)
        xx += x * x
        gx += x * load(dy_row, k + lanes, N_COLS) * load(w_ptr, k + lanes, N_COLS)
    rstd = tl.rsqrt(tl.sum(xx, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    mean_gn = tl.sum(gx, axis=0) * rstd / N_COLS
    for k in range(0, N_COLS, BLOCK):
        n = load(x_row, k + lanes, N_COLS) * rstd
        g = load(dy_row, k + lanes, N_COLS) * load(w_ptr, k + lanes, N_COLS)
        store(dx_ptr + row * s_dx, k + lanes, N_COLS, (g - n * mean_gn) * rstd)


@triton.jit
def weight_sums(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, chunk, s_dy, s_x):
    """Program (k, j): the sum of dy * n over the rows of chunk k, for BREADTH columns from j * BREADTH on."""
    k = tl.program_id(0)
    cols = tl.program_id(1) * BREADTH + tl.arange(0, BREADTH)
    first = k * chunk
    last = tl.minimum(first + chunk, n_rows)
    acc = tl.zeros((DEPTH, BREADTH), dtype=tl.float32)
    for start in range(first, last, DEPTH):
        rows = (start + tl.arange(0, DEPTH)).to(tl.int64)[:, None]
        inside = (rows < n_rows) & (cols[None, :] < n_cols)
        dy = tl.load(dy_ptr + rows * s_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * s_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        acc += dy * x * tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
    store(sums_ptr + k * n_cols, cols, n_cols, tl.sum(acc, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    on(dx_rows, x)[(n_rows,)](
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    chunks = min(MOST_CHUNKS, triton.cdiv(n_rows, DEPTH))
    chunk = triton.cdiv(n_rows, chunks)
    sums = torch.empty((chunks, n_cols), device=x.device, dtype=torch.float32)
    on(weight_sums, x)[(chunks, triton.cdiv(n_cols, BREADTH))](
        dy, x, rstd, sums, n_rows, n_cols, chunk, dy.stride(0), x.stride(0)
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
