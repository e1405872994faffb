# labs/lab4_production_slice/layer_norm_backward.py | two mistakes | In dx_kernel the stored value has `- c1 + n * c2`, where the second mean must be subtracted as well: `- c1 - n * c2`. In layer_norm_backward the last line of sums is `column_sums(sums[0], dbias)`, so dbias gets the values of dweight; it should be `sums[1]`.
import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, mean_ptr, rstd_ptr, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    x_ptr += row * stride_x
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)

    s = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, N_COLS, BLOCK):
        s += load(x_ptr, k + lanes, N_COLS)
    mean = tl.sum(s) / N_COLS

    v = tl.zeros((BLOCK,), tl.float32)
    a = tl.zeros((BLOCK,), tl.float32)
    b = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, N_COLS, BLOCK):
        d = tl.where(k + lanes < N_COLS, load(x_ptr, k + lanes, N_COLS) - mean, 0.0)
        g = load(dy_ptr, k + lanes, N_COLS) * load(weight_ptr, k + lanes, N_COLS)
        v += d * d
        a += g
        b += g * d
    rstd = tl.rsqrt(tl.sum(v) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    c1 = tl.sum(a) / N_COLS
    c2 = tl.sum(b) * rstd / N_COLS
    for k in range(0, N_COLS, BLOCK):
        n = (load(x_ptr, k + lanes, N_COLS) - mean) * rstd
        g = load(dy_ptr, k + lanes, N_COLS) * load(weight_ptr, k + lanes, N_COLS)
        store(dx_ptr, k + lanes, N_COLS, (g - c1 + n * c2) * rstd)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    k, groups = tl.program_id(1), tl.num_programs(1)
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    dw = tl.zeros((ROWS, COLS), tl.float32)
    db = tl.zeros((ROWS, COLS), tl.float32)
    for r in range(k * ROWS, n_rows, groups * ROWS):
        i = r + tl.arange(0, ROWS).to(tl.int64)[:, None]
        ok = (i < n_rows) & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + i * stride_dy + cols[None, :], ok, 0.0).to(tl.float32)
        x = tl.load(x_ptr + i * stride_x + cols[None, :], ok, 0.0).to(tl.float32)
        m = tl.load(mean_ptr + i, i < n_rows, 0.0)
        q = tl.load(rstd_ptr + i, i < n_rows, 0.0)
        dw += dy * (x - m) * q
        db += dy
    store(sums_ptr + k * n_cols, cols, n_cols, tl.sum(dw, axis=0))
    store(sums_ptr + (groups + k) * n_cols, cols, n_cols, tl.sum(db, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    m, n = x.shape
    mean, rstd = torch.empty((2, m), device=x.device, dtype=torch.float32)
    sums = x.new_empty((2, min(GROUPS, triton.cdiv(m, ROWS)), n), dtype=torch.float32)
    s_dy, s_x = dy.stride(0), x.stride(0)
    on(dx_kernel, x)[(m,)](
        dy, x, weight, dx, mean, rstd, s_dy, s_x, dx.stride(0), eps, N_COLS=n, BLOCK=block_of(n)
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n, COLS), sums.shape[1])](
        dy, x, mean, rstd, sums, m, n, s_dy, s_x
    )
    column_sums(sums[0], dweight)
    column_sums(sums[0], dbias)
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
        return *backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    return LayerNorm.apply(x, weight, bias, eps)
