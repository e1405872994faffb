# labs/lab4_production_slice/layer_norm_backward.py | right | dx is written as rstd * g - slope * d - level with three numbers for each row (slope has rstd three times); blocks go from the end of the row to its beginning; a slice has neighbouring tiles of rows; one buffer holds both sums and is cut by slices; results are allocated in a comprehension
"""The gradients of LayerNorm: one number for each term of a row, tiles of rows in slices."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, on
from torch.library import triton_op

SLICES = 48
TILE = {"HIGH": 16, "WIDE": 64}


@triton.jit
def fetch(pointer, mask):
    """fp32, and 0 outside."""
    return tl.load(pointer, mask=mask, other=0.0).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def by_rows(
    dx_ptr, dy_ptr, x_ptr, weight_ptr, table_ptr, to_dx, to_dy, to_x, n_rows, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx of one row; mean and rstd of the row go to column i of the table."""
    i = tl.program_id(0)
    far = i.to(tl.int64)
    LAST: tl.constexpr = (N_COLS - 1) // BLOCK * BLOCK
    total = tl.zeros((BLOCK,), tl.float32)
    for back in range(0, N_COLS, BLOCK):
        cols = LAST - back + tl.arange(0, BLOCK)
        total += fetch(x_ptr + far * to_x + cols, cols < N_COLS)
    mean = tl.sum(total, 0) / N_COLS

    dd = tl.zeros((BLOCK,), tl.float32)
    gg = tl.zeros((BLOCK,), tl.float32)
    gd = tl.zeros((BLOCK,), tl.float32)
    for back in range(0, N_COLS, BLOCK):
        cols = LAST - back + tl.arange(0, BLOCK)
        inside = cols < N_COLS
        d = tl.where(inside, fetch(x_ptr + far * to_x + cols, inside) - mean, 0.0)
        g = fetch(dy_ptr + far * to_dy + cols, inside) * fetch(weight_ptr + cols, inside)
        dd += d * d
        gg += g
        gd += g * d
    rstd = tl.rsqrt(tl.sum(dd, 0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(table_ptr + i, mean)
    tl.store(table_ptr + n_rows + i, rstd)

    slope = rstd * rstd * rstd * (tl.sum(gd, 0) / N_COLS)
    level = rstd * (tl.sum(gg, 0) / N_COLS)
    for back in range(0, N_COLS, BLOCK):
        cols = LAST - back + tl.arange(0, BLOCK)
        inside = cols < N_COLS
        d = fetch(x_ptr + far * to_x + cols, inside) - mean
        g = fetch(dy_ptr + far * to_dy + cols, inside) * fetch(weight_ptr + cols, inside)
        dx = rstd * g - slope * d - level
        tl.store(dx_ptr + far * to_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def by_columns(
    terms_ptr, dy_ptr, x_ptr, table_ptr, to_dy, to_x, n_rows, n_cols, tiles_each,
    HIGH: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Slice k has tiles_each tiles of HIGH rows; its sums go to row k of the two parts of terms."""
    k = tl.program_id(1)
    slices = tl.num_programs(1)
    cols = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    dyn = tl.zeros((HIGH, WIDE), tl.float32)
    dys = tl.zeros((HIGH, WIDE), tl.float32)
    for tile in range(0, tiles_each):
        rows = (k * tiles_each + tile) * HIGH + tl.arange(0, HIGH)
        here = rows < n_rows
        both = here[:, None] & (cols < n_cols)[None, :]
        far = rows.to(tl.int64)[:, None]
        mean = fetch(table_ptr + rows, here)[:, None]
        rstd = fetch(table_ptr + n_rows + rows, here)[:, None]
        dy = fetch(dy_ptr + far * to_dy + cols[None, :], both)
        x = fetch(x_ptr + far * to_x + cols[None, :], both)
        dyn += dy * ((x - mean) * rstd)
        dys += dy
    tl.store(terms_ptr + k * n_cols + cols, tl.sum(dyn, 0), mask=cols < n_cols)
    tl.store(terms_ptr + (slices + k) * n_cols + cols, tl.sum(dys, 0), mask=cols < n_cols)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """dx, dweight and dbias."""
    n_rows, n_cols = x.size()
    results = [
        given if given is not None else like.new_empty(like.shape)
        for given, like in ((dx, x), (dweight, weight), (dbias, weight))
    ]
    table = x.new_empty((2, n_rows), dtype=torch.float32)
    on(by_rows, x)[(n_rows,)](
        results[0], dy, x, weight, table, results[0].stride(0), dy.stride(0), x.stride(0), n_rows, eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    tiles = triton.cdiv(n_rows, TILE["HIGH"])
    tiles_each = triton.cdiv(tiles, SLICES)
    slices = triton.cdiv(tiles, tiles_each)
    terms = x.new_empty((2 * slices, n_cols), dtype=torch.float32)
    on(by_columns, x)[(triton.cdiv(n_cols, TILE["WIDE"]), slices)](
        terms, dy, x, table, dy.stride(0), x.stride(0), n_rows, n_cols, tiles_each, **TILE
    )
    column_sums(terms[:slices], results[1])
    column_sums(terms[slices:], results[2])
    return results[0], results[1], results[2]


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """layer_norm_backward as an operator that torch.compile can look into."""
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        """Return y for x."""
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        dx, dweight, dbias = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
