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
    tl.static_assert(False, "TODO 1: mean and 1 / sqrt(variance + eps) of the row")
    # END TODO 1
    # BEGIN TODO 2: normalise, scale, shift and store the row, tile by tile (about 7 lines)
    tl.static_assert(False, "TODO 2: normalise, scale, shift and store the row, tile by tile")
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
    tl.static_assert(False, "TODO 3: dx of this program's tile of its rows, and its two sums")
    # END TODO 3


@triton.jit
def column_sums_kernel(sums_ptr, out_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """out[j] = sum over i of sums[i, j], (n_rows, n_cols) fp32, contiguous; program k owns COLS columns."""
    # BEGIN TODO 4: add the rows up, always in the same order (about 7 lines)
    tl.static_assert(False, "TODO 4: add the rows up, always in the same order")
    # END TODO 4


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None, traced=False) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x, (n_rows, n_cols) fp32, fp16 or
    bf16 with contiguous columns; weight and bias are (n_cols,) of that dtype. The result goes to `out`, like
    x, where one is given; rows of both may be any number of elements apart. The variance divides by n_cols.
    After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    out = torch.empty_like(x) if out is None else out
    # BEGIN TODO 5: launch one program a row (about 2 lines)
    raise NotImplementedError("TODO 5: launch one program a row")
    # END TODO 5
    return out


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None, traced=False):
    """Gradients of layer_norm with respect to x, weight and bias from dy, which is like x: the three in that
    order, written to `dx`, `dweight` and `dbias` where they are given.
    """
    pairs = ((dx, x), (dweight, weight), (dbias, weight))
    dx, dweight, dbias = (torch.empty_like(like) if out is None else out for out, like in pairs)
    # BEGIN TODO 6: launch both kernels of the backward pass (about 13 lines)
    raise NotImplementedError("TODO 6: launch both kernels of the backward pass")
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
        raise NotImplementedError("TODO 7: the result, and what the gradient needs")
        # END TODO 7

    @staticmethod
    def backward(ctx, dy):
        """dx, dweight and dbias from dy, and None for eps."""
        # BEGIN TODO 8: the gradients (about 2 lines)
        raise NotImplementedError("TODO 8: the gradients")
        # END TODO 8


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, for use under torch.compile, too."""
    return LayerNorm.apply(x, weight, bias, eps)
