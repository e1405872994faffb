# labs/lab4_production_slice/layer_norm_backward.py | honest | no mistake: dx by two-dimensional tiles of several short rows, dweight and dbias by consecutive chunks of rows on a transposed grid, and one kernel of its own that adds up both; it must get all points
"""The gradients of LayerNorm by tiles: rows side by side where they are short."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, on
from torch.library import triton_op

CHUNKS = tl.constexpr(32)
STRIP_ROWS, STRIP_COLS = tl.constexpr(16), tl.constexpr(128)


@triton.jit
def tile_of(base, offsets, keep):
    return tl.load(base + offsets, mask=keep, other=0.0).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_by_tiles(
    dy_ptr, x_ptr, w_ptr, dx_ptr, mean_ptr, rstd_ptr, n_rows, dy_step, x_step, dx_step, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr, TALL: tl.constexpr,
):  # fmt: skip
    numbers = tl.program_id(0).to(tl.int64) * TALL + tl.arange(0, TALL)
    r = numbers[:, None]
    c = tl.arange(0, BLOCK)[None, :]

    acc = tl.zeros((TALL, BLOCK), tl.float32)
    for k in range(0, N_COLS, BLOCK):
        acc += tile_of(x_ptr, r * x_step + k + c, (r < n_rows) & (k + c < N_COLS))
    mean = tl.sum(acc, axis=1) / N_COLS
    centre = mean[:, None]

    dd = tl.zeros((TALL, BLOCK), tl.float32)
    gg = tl.zeros((TALL, BLOCK), tl.float32)
    gd = tl.zeros((TALL, BLOCK), tl.float32)
    for k in range(0, N_COLS, BLOCK):
        keep = (r < n_rows) & (k + c < N_COLS)
        d = tl.where(keep, tile_of(x_ptr, r * x_step + k + c, keep) - centre, 0.0)
        g = tile_of(dy_ptr, r * dy_step + k + c, keep) * tile_of(w_ptr, k + c, k + c < N_COLS)
        dd += d * d
        gg += g
        gd += g * d
    rstd = tl.rsqrt(tl.sum(dd, axis=1) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + numbers, mean, mask=numbers < n_rows)
    tl.store(rstd_ptr + numbers, rstd, mask=numbers < n_rows)
    scale = rstd[:, None]
    mean_g = (tl.sum(gg, axis=1) / N_COLS)[:, None]
    mean_gn = (tl.sum(gd, axis=1) * rstd / N_COLS)[:, None]

    for k in range(0, N_COLS, BLOCK):
        keep = (r < n_rows) & (k + c < N_COLS)
        n = (tile_of(x_ptr, r * x_step + k + c, keep) - centre) * scale
        g = tile_of(dy_ptr, r * dy_step + k + c, keep) * tile_of(w_ptr, k + c, k + c < N_COLS)
        dx = scale * (g - mean_g - n * mean_gn)
        tl.store(dx_ptr + r * dx_step + k + c, dx.to(dx_ptr.dtype.element_ty), mask=keep)


@triton.jit
def sums_of_chunks(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, chunk, dy_step, x_step):
    """Row k of sums, (2, chunks, n_cols): the sums of dy * n and of dy over rows k * chunk to (k + 1) * chunk."""
    k = tl.program_id(0)
    chunks = tl.num_programs(0)
    cols = tl.program_id(1) * STRIP_COLS + tl.arange(0, STRIP_COLS)
    last = tl.minimum((k + 1) * chunk, n_rows)
    dw = tl.zeros((STRIP_ROWS, STRIP_COLS), tl.float32)
    db = tl.zeros((STRIP_ROWS, STRIP_COLS), tl.float32)
    for start in range(k * chunk, last, STRIP_ROWS):
        r = (start + tl.arange(0, STRIP_ROWS)[:, None]).to(tl.int64)
        keep = (r < last) & (cols < n_cols)[None, :]
        dy = tile_of(dy_ptr, r * dy_step + cols[None, :], keep)
        x = tile_of(x_ptr, r * x_step + cols[None, :], keep)
        mean = tl.load(mean_ptr + r, mask=r < last, other=0.0)
        rstd = tl.load(rstd_ptr + r, mask=r < last, other=0.0)
        dw += dy * ((x - mean) * rstd)
        db += dy
    tl.store(sums_ptr + k * n_cols + cols, tl.sum(dw, axis=0), mask=cols < n_cols)
    tl.store(sums_ptr + (chunks + k) * n_cols + cols, tl.sum(db, axis=0), mask=cols < n_cols)


@triton.jit
def fold(sums_ptr, dw_ptr, db_ptr, chunks, n_cols, WIDTH: tl.constexpr):
    k = tl.arange(0, CHUNKS)[:, None]
    cols = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    keep = (k < chunks) & (cols < n_cols)[None, :]
    dw = tl.sum(tile_of(sums_ptr, k * n_cols + cols[None, :], keep), axis=0)
    db = tl.sum(tile_of(sums_ptr, (chunks + k) * n_cols + cols[None, :], keep), axis=0)
    tl.store(dw_ptr + cols, dw.to(dw_ptr.dtype.element_ty), mask=cols < n_cols)
    tl.store(db_ptr + cols, db.to(db_ptr.dtype.element_ty), mask=cols < n_cols)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    if dbias is None:
        dbias = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    tall = max(1, min(16, 2048 // block))
    statistics = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    mean, rstd = statistics[0], statistics[1]
    on(dx_by_tiles, x)[(triton.cdiv(n_rows, tall),)](
        dy, x, weight, dx, mean, rstd, n_rows, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block, TALL=tall,
    )  # fmt: skip
    chunks = min(32, triton.cdiv(n_rows, 16))
    chunk = 16 * triton.cdiv(n_rows, 16 * chunks)
    sums = torch.empty((2, chunks, n_cols), device=x.device, dtype=torch.float32)
    on(sums_of_chunks, x)[(chunks, triton.cdiv(n_cols, 128))](
        dy, x, mean, rstd, sums, n_rows, n_cols, chunk, dy.stride(0), x.stride(0)
    )
    on(fold, x)[(triton.cdiv(n_cols, 64),)](sums, dweight, dbias, chunks, n_cols, WIDTH=64)
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
        dx, dweight, dbias = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    return LayerNorm.apply(x, weight, bias, eps)
