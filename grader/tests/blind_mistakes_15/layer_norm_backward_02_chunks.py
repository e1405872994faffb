# labs/lab4_production_slice/layer_norm_backward.py | corner | The share of rows of a group is `n_rows // groups`, rounded down, so the last n_rows % groups rows belong to no group and are missing in dweight and dbias where groups does not divide n_rows; it should be triton.cdiv(n_rows, groups), with the rows below n_rows.
"""LayerNorm backwards: a kernel by rows for dx, a kernel by columns for the two vectors."""

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
    dy_ptr, x_ptr, weight_ptr, dx_ptr, mean_ptr, rstd_ptr,
    stride_dy, stride_x, stride_dx,
    eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Row i of dx by program i; leaves mean and rstd of the row in two vectors."""
    i = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += i * stride_dy
    x_ptr += i * stride_x
    dx_ptr += i * stride_dx
    lane = tl.arange(0, BLOCK)

    mean = 0.0
    for c in range(0, N_COLS, BLOCK):
        mean += tl.sum(load(x_ptr, c + lane, N_COLS), axis=0) / N_COLS

    ss = 0.0
    sg = 0.0
    sgd = 0.0
    for c in range(0, N_COLS, BLOCK):
        col = c + lane
        diff = tl.where(col < N_COLS, load(x_ptr, col, N_COLS) - mean, 0.0)
        g = load(weight_ptr, col, N_COLS) * load(dy_ptr, col, N_COLS)
        ss += tl.sum(diff * diff, axis=0)
        sg += tl.sum(g, axis=0)
        sgd += tl.sum(g * diff, axis=0)

    rstd = tl.rsqrt(ss / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + i, mean)
    tl.store(rstd_ptr + i, rstd)

    mean_g = sg / N_COLS
    mean_gn = sgd * rstd / N_COLS
    for c in range(0, N_COLS, BLOCK):
        col = c + lane
        n = (load(x_ptr, col, N_COLS) - mean) * rstd
        g = load(weight_ptr, col, N_COLS) * load(dy_ptr, col, N_COLS)
        store(dx_ptr, col, N_COLS, (g - mean_g - n * mean_gn) * rstd)


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x, share
):
    """Sums of dy * n and dy over one group: `share` neighbouring rows; program (i, k) has group k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    first = group * share
    for offset in range(0, share, ROWS):
        local = offset + tl.arange(0, ROWS)[:, None]
        rows = first + local
        here = (local < share) & (rows < n_rows)
        inside = here & (cols < n_cols)[None, :]
        wide = rows.to(tl.int64)
        dy = tl.load(dy_ptr + wide * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + wide * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=here, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=here, other=0.0)
        dweight += dy * ((x - mean) * rstd)
        dbias += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """dx, dweight and dbias of layer_norm, into the tensors that are given."""
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    if dbias is None:
        dbias = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    mean = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    launch = on(dx_kernel, x)[(n_rows,)]
    launch(
        dy, x, weight, dx, mean, rstd,
        dy.stride(0), x.stride(0), dx.stride(0),
        eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip

    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    share = n_rows // groups
    sums = x.new_empty((2, groups, n_cols), dtype=torch.float32)
    launch = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)]
    launch(dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0), share)
    column_sums(sums[0], dweight)
    column_sums(sums[1], dbias)
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """layer_norm_backward for torch.compile."""
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    """y = layer_norm(x), with gradients."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        """The forward pass."""
        y = layer_norm_op(x, weight, bias, eps)
        ctx.eps = eps
        ctx.save_for_backward(x, weight)
        return y

    @staticmethod
    def backward(ctx, dy):
        """The backward pass."""
        x, weight = ctx.saved_tensors
        dx, dweight, dbias = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
