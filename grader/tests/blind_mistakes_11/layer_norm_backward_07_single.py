# labs/lab4_production_slice/layer_norm_backward.py | contract | without dweight= and dbias= `_vector` allocates them in fp32, "as sums over many rows need it"; README: without them the function allocates "new contiguous tensors of the dtype of its inputs", so they must have the dtype of weight. The numbers are right; shows in fp16 and bf16 where no dweight or dbias is given (layer_norm through autograd converts them).
"""LayerNorm backward in two kernels without a buffer of partial sums."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

TILES = [
    triton.Config({"ROWS": 32, "COLS": 32}, num_warps=4),
    triton.Config({"ROWS": 64, "COLS": 16}, num_warps=4),
]


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def input_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    mean_ptr,
    rstd_ptr,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx of a row."""
    row = tl.program_id(0)
    x_row = x_ptr + row.to(tl.int64) * stride_x
    dy_row = dy_ptr + row.to(tl.int64) * stride_dy
    dx_row = dx_ptr + row.to(tl.int64) * stride_dx
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        sums += load(x_row, start + tl.arange(0, BLOCK), N_COLS)
    mean = tl.sum(sums, axis=0) / N_COLS
    of_dd = tl.zeros((BLOCK,), dtype=tl.float32)
    of_g = tl.zeros((BLOCK,), dtype=tl.float32)
    of_gd = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(weight_ptr, cols, N_COLS) * load(dy_row, cols, N_COLS)
        of_dd += d * d
        of_g += g
        of_gd += g * d
    rstd = tl.rsqrt(tl.sum(of_dd, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    mean_g = tl.sum(of_g, axis=0) / N_COLS
    mean_gn = rstd * tl.sum(of_gd, axis=0) / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(weight_ptr, cols, N_COLS) * load(dy_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, (g - mean_g - n * mean_gn) * rstd)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.autotune(configs=TILES, key=["n_rows", "n_cols"])
@triton.jit
def parameter_kernel(
    dy_ptr,
    x_ptr,
    mean_ptr,
    rstd_ptr,
    dweight_ptr,
    dbias_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """A program has COLS columns and all rows."""
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)[None, :]
    of_dyn = tl.zeros((ROWS, COLS), dtype=tl.float32)
    of_dy = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(0, n_rows, ROWS):
        rows = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        of_dyn += dy * (x - mean) * rstd
        of_dy += dy
    flat = tl.program_id(0) * COLS + tl.arange(0, COLS)
    store(dweight_ptr, flat, n_cols, tl.sum(of_dyn, axis=0))
    store(dbias_ptr, flat, n_cols, tl.sum(of_dy, axis=0))


def _vector(given, like):
    """What was given, or a new vector; fp32, as sums over many rows need it."""
    if given is not None:
        return given
    return torch.empty(like.shape, device=like.device, dtype=torch.float32)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of LayerNorm."""
    n_rows, n_cols = x.shape
    dx = torch.empty_like(x) if dx is None else dx
    dweight = _vector(dweight, weight)
    dbias = _vector(dbias, weight)
    mean = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    on(input_kernel, x)[(n_rows,)](
        dy,
        x,
        weight,
        dx,
        mean,
        rstd,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    grid = lambda meta: (triton.cdiv(n_cols, meta["COLS"]),)
    on(parameter_kernel, x)[grid](
        dy, x, mean, rstd, dweight, dbias, n_rows, n_cols, dy.stride(0), x.stride(0)
    )
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """layer_norm_backward as an operator."""
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    """LayerNorm for autograd."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        """y"""
        y = layer_norm_op(x, weight, bias, eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx, dweight, dbias"""
        x, weight = ctx.saved_tensors
        gradients = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return gradients[0], gradients[1], gradients[2], None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable LayerNorm."""
    return LayerNorm.apply(x, weight, bias, eps)
