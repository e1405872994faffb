"""Layer normalisation over rows of any length: forward, backward, and both as a differentiable function."""

import rows
import torch
import triton
import triton.language as tl
from rows import again, columns, four_sums, keep, load, moments, near_mean, read4, store, store_row, write4
from torch.library import triton_op


@triton.autotune(rows.BY_LANES_OF_TWO, ["n_cols"], prune_configs_by={"early_config_prune": rows.few_or_many})
@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, n_cols, stride_x, stride_y, eps, TILE: tl.constexpr,
                      TILES: tl.constexpr, KEPT: tl.constexpr, LANES: tl.constexpr):  # fmt: skip
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i owns row i.

    x and y are (n_rows, n_cols), weight and bias (n_cols,), all of one dtype, columns contiguous; stride_x
    and stride_y are elements from one row to the next. A row has TILES tiles of TILE columns; a tile is taken
    as TILE / LANES by LANES, and lane j adds up column j of it. The last tile is KEPT, or read again, too.
    """
    # BEGIN TODO 1: mean and 1 / sqrt(variance + eps) of the row (about 15 lines)
    row, cols = tl.program_id(axis=0).to(tl.int64), columns(TILE, LANES)
    x_row, y_row = x_ptr + row * stride_x, y_ptr + row * stride_y
    # Differences from a number near the mean: the squares of x itself cancel where the mean is large.
    near, sums = near_mean(x_row, n_cols), tl.zeros((LANES,), dtype=tl.float32)
    squares, at = sums, (TILES - 1) * TILE + cols
    for i in range(TILES - KEPT):
        inside = i * TILE + cols < n_cols
        # With near loaded outside the row, d is 0 there.
        d = load(x_row + i * TILE + cols, inside, near, KEEP=True) - near
        sums, squares = sums + tl.sum(d, axis=0), squares + tl.sum(d * d, axis=0)
    if KEPT:
        x = keep(x_row + at, at < n_cols)
        d = tl.where(at < n_cols, x.to(tl.float32) - near, 0.0)
        sums, squares = sums + tl.sum(d, axis=0), squares + tl.sum(d * d, axis=0)
    off, rstd = moments(tl.sum(sums, axis=0), tl.sum(squares, axis=0), n_cols, eps)
    # END TODO 1
    # BEGIN TODO 2: normalise, scale, shift and store the row, tile by tile (about 7 lines)
    if KEPT:
        store_row(y_row, (again(x).to(tl.float32) - near - off) * rstd, weight_ptr, bias_ptr, at, n_cols)
    for i in range(KEPT, TILES):
        # Backwards: what was read last is nearest.
        at = (TILES - 1 - i) * TILE + cols
        n = (load(x_row + at, at < n_cols) - near - off) * rstd
        store_row(y_row, n, weight_ptr, bias_ptr, at, n_cols)
    # END TODO 2


@triton.autotune(rows.BY_BOTH, ["n_cols", "FIRST"], prune_configs_by={"early_config_prune": rows.fitting})
@triton.jit
def gradient_kernel(dy_ptr, x_ptr, weight_ptr, dx_ptr, parts_ptr, sums_ptr, n_rows, n_cols, stride_dy,
                    stride_x, stride_dx, eps, TILE: tl.constexpr, TILES: tl.constexpr,
                    FIRST: tl.constexpr, LANES: tl.constexpr, STAGES: tl.constexpr):  # fmt: skip
    """dx = rstd * (g - mean(g) - n * mean(g * n)), with g = dy * weight and n the normalised row.

    Program (i, k) takes every so many rows and owns tile k of them. Its sums over these rows, of dy * n and
    of dy, go to rows i of the two matrices in sums, (2, number of i, n_cols) fp32. Where a row has several
    tiles, a FIRST launch stores what each adds to four sums of the row: parts is (n_rows, TILES, 4) fp32.
    """
    # BEGIN TODO 3: dx of this program's tile of its rows, and its two sums (about 28 lines)
    tile, cols = tl.program_id(axis=1), tl.program_id(axis=1) * TILE + columns(TILE, LANES)
    valid = cols < n_cols
    weight, dweight = load(weight_ptr + cols, valid, KEEP=True), tl.zeros(cols.shape, dtype=tl.float32)
    dbias, first, step = dweight, tl.program_id(axis=0).to(tl.int64), tl.num_programs(axis=0)
    for row in tl.range(first, n_rows, step, num_stages=STAGES):
        x_row, parts_row = x_ptr + row * stride_x, parts_ptr + row * TILES * 4
        dy = load(dy_ptr + row * stride_dy + cols, valid)
        # Differences from a number near the mean: the squares of x itself cancel where the mean is large.
        d, g = tl.where(valid, load(x_row + cols, valid) - near_mean(x_row, n_cols), 0.0), dy * weight
        if FIRST or TILES == 1:
            sum_d, squares, sum_g, products = four_sums(d, d * d, g, g * d)
        else:
            sum_d, squares, sum_g, products = read4(parts_row, TILES)
        if FIRST:
            write4(parts_row + tile * 4, sum_d, squares, sum_g, products)
        else:
            off, rstd = moments(sum_d, squares, n_cols, eps)
            mean_g, mean_gn = sum_g / n_cols, (products - sum_g * off) / n_cols * rstd
            n = (d - off) * rstd
            store(dx_ptr + row * stride_dx + cols, rstd * (g - mean_g - n * mean_gn), valid)
            dweight, dbias = dweight + dy * n, dbias + dy
    # A FIRST launch leaves zeros, and the next one stores over them.
    tl.store(sums_ptr + first * n_cols + cols, dweight, mask=valid)
    tl.store(sums_ptr + (step + first) * n_cols + cols, dbias, mask=valid)
    # END TODO 3


@triton.jit
def column_sums_kernel(sums_ptr, out_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """out[j] = sum over i of sums[i, j], (n_rows, n_cols) fp32, contiguous; program k owns COLS columns."""
    # BEGIN TODO 4: add the rows up, always in the same order (about 7 lines)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(0, n_rows, ROWS):
        index = start + tl.arange(0, ROWS)[:, None]
        total += load(sums_ptr + index.to(tl.int64) * n_cols + cols, (index < n_rows) & (cols < n_cols))
    store(out_ptr + cols, tl.sum(total, axis=0), cols < n_cols)
    # END TODO 4


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None, traced=False) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x, (n_rows, n_cols) fp32, fp16 or
    bf16 with contiguous columns; weight and bias are (n_cols,) of that dtype. The result goes to `out`, like
    x, where one is given; rows of both may be any number of elements apart. The variance divides by n_cols.
    After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    out = torch.empty_like(x) if out is None else out
    # BEGIN TODO 5: launch one program a row (about 2 lines)
    launch = rows.on(layer_norm_kernel, traced)[(x.shape[0],)]
    launch(x, weight, bias, out, x.shape[1], x.stride(0), out.stride(0), eps, **rows.last_kept(x.shape[1]))
    # END TODO 5
    return out


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None, traced=False):
    """Gradients of layer_norm with respect to x, weight and bias from dy, which is like x: the three in that
    order, written to `dx`, `dweight` and `dbias` where they are given.
    """
    pairs = ((dx, x), (dweight, weight), (dbias, weight))
    dx, dweight, dbias = (torch.empty_like(like) if out is None else out for out, like in pairs)
    # BEGIN TODO 6: launch both kernels of the backward pass (about 13 lines)
    (n_rows, n_cols), meta = x.shape, rows.tiles(x.shape[1])
    programs = rows.programs_for(n_rows, n_cols)
    parts = torch.empty((n_rows, meta["TILES"], 4), device=x.device, dtype=torch.float32)
    sums = torch.empty((2, programs, n_cols), device=x.device, dtype=torch.float32)
    launch = rows.on(gradient_kernel, traced)[(programs, meta["TILES"])]
    for first in (True, False) if meta["TILES"] > 1 else (False,):
        strides = dy.stride(0), x.stride(0), dx.stride(0)
        launch(dy, x, weight, dx, parts, sums, n_rows, n_cols, *strides, eps, FIRST=first, **meta)
    for total, out in ((sums[0], dweight), (sums[1], dbias)):
        rows.on(column_sums_kernel, traced)[(triton.cdiv(n_cols, 64),)](total, out, programs, n_cols, 32, 64)
    # END TODO 6
    return dx, dweight, dbias


@triton_op("course::layer_norm", mutates_args=())
def forward_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps, traced=True)


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float) -> list[torch.Tensor]:
    """layer_norm_backward, likewise."""
    return list(layer_norm_backward(dy, x, weight, eps=eps, traced=True))


class LayerNorm(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        """y from x, weight and bias."""
        # BEGIN TODO 7: the result, and what the gradient needs (about 3 lines)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return forward_op(x, weight, bias, eps)
        # END TODO 7

    @staticmethod
    def backward(ctx, dy):
        """dx, dweight and dbias from dy, and None for eps."""
        # BEGIN TODO 8: the gradients (about 2 lines)
        return *backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps), None
        # END TODO 8


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, for use under torch.compile, too."""
    return LayerNorm.apply(x, weight, bias, eps)
