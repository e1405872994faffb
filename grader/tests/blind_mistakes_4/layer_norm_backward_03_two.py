# labs/lab4_production_slice/layer_norm_backward.py | two mistakes | (1) dx_kernel, helper centred: lanes past the end are not set to 0, so 0 - mean enters the sum of squares and rstd is wrong unless BLOCK divides n_cols; needs tl.where(cols < N_COLS, ..., 0). (2) LayerNorm.backward hands dy on as it is; an expanded or transposed dy is read with wrong addresses, must be dy.contiguous().
import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.jit
def centred(x_row, mean, cols, N_COLS: tl.constexpr):
    return load(x_row, cols, N_COLS) - mean


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, mean_ptr, rstd_ptr, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        acc += load(x_row, start + lanes, N_COLS)
    mean = tl.sum(acc, axis=0) / N_COLS

    dd = tl.zeros((BLOCK,), dtype=tl.float32)
    gg = tl.zeros((BLOCK,), dtype=tl.float32)
    gd = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        d = centred(x_row, mean, cols, N_COLS)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        dd += d * d
        gg += g
        gd += g * d
    rstd = tl.rsqrt(tl.sum(dd, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    mean_g = tl.sum(gg, axis=0) / N_COLS
    mean_gn = tl.sum(gd, axis=0) * rstd / N_COLS
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        n = centred(x_row, mean, cols, N_COLS) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    col_ok = (cols < n_cols)[None, :]
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    tiles = tl.cdiv(n_rows, ROWS)
    for t in range(group, tiles, groups):
        r = (tl.arange(0, ROWS) + t * ROWS).to(tl.int64)
        row_ok = r < n_rows
        ok = row_ok[:, None] & col_ok
        mean = tl.load(mean_ptr + r, mask=row_ok, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + r, mask=row_ok, other=0.0)[:, None]
        dy = tl.load(dy_ptr + r[:, None] * stride_dy + cols[None, :], mask=ok, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + r[:, None] * stride_x + cols[None, :], mask=ok, other=0.0).to(tl.float32)
        dweight += dy * ((x - mean) * rstd)
        dbias += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    mean = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
    )
    column_sums(sums[0], dweight)
    column_sums(sums[1], dbias)
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx, dweight, dbias = backward_op(dy, x, weight, ctx.eps)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    return LayerNorm.apply(x, weight, bias, eps)
