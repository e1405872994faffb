"""RMS normalisation over rows of any length: forward, backward, and both as a differentiable function."""

import rows
import torch
import triton
import triton.language as tl
from rows import again, columns, inverse_root, keep, load, store, sums_of_two
from torch.library import triton_op


@triton.autotune(configs=rows.BY_LANES, key=["n_cols"], prune_configs_by={"early_config_prune": rows.fitting})
@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, y_ptr, n_cols, stride_x, stride_y, eps, TILE: tl.constexpr,
                    TILES: tl.constexpr, KEPT: tl.constexpr, LANES: tl.constexpr):  # fmt: skip
    """y = x / sqrt(mean(x * x) + eps) * weight; program i owns row i.

    x and y are (n_rows, n_cols), weight is (n_cols,), all of one dtype, columns contiguous; stride_x and
    stride_y are elements from one row to the next. A row has TILES tiles of TILE columns; a tile is taken as
    TILE / LANES by LANES, and lane j adds up column j of it. The last tile is KEPT, or read again, too.
    """
    # BEGIN TODO 1: 1 / sqrt(mean(x * x) + eps) of the row (about 10 lines)
    tl.static_assert(False, "TODO 1: 1 / sqrt(mean(x * x) + eps) of the row")
    # END TODO 1
    # BEGIN TODO 2: normalise, scale and store the row, tile by tile (about 7 lines)
    tl.static_assert(False, "TODO 2: normalise, scale and store the row, tile by tile")
    # END TODO 2


@triton.autotune(rows.BY_STAGE, ["n_cols", "FIRST"], prune_configs_by={"early_config_prune": rows.fitting})
@triton.jit
def gradient_kernel(dy_ptr, x_ptr, weight_ptr, dx_ptr, parts_ptr, sums_ptr, n_rows, n_cols, stride_dy,
                    stride_x, stride_dx, eps, ROWS: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr,
                    FIRST: tl.constexpr, STAGES: tl.constexpr):  # fmt: skip
    """dx = r * (g - n * mean(g * n)), with g = dy * weight, n = x * r, and r = 1 / sqrt(mean(x * x) + eps).

    Program (i, k) takes ROWS rows at a time, every so many, and owns tile k of them. Its sum of dy * n over
    these rows goes to row i of sums, (number of i, n_cols) fp32. Where a row has several tiles, a FIRST
    launch stores what each adds to two sums of the row: parts is (n_rows, TILES, 2) fp32.
    """
    # BEGIN TODO 3: dx of this program's tile of its rows, and its sum (about 26 lines)
    tl.static_assert(False, "TODO 3: dx of this program's tile of its rows, and its sum")
    # END TODO 3


@triton.jit
def column_sums_kernel(sums_ptr, out_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """out[j] = sum over i of sums[i, j], (n_rows, n_cols) fp32, contiguous; program k owns COLS columns."""
    # BEGIN TODO 4: add the rows up, always in the same order (about 7 lines)
    tl.static_assert(False, "TODO 4: add the rows up, always in the same order")
    # END TODO 4


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None, traced=False) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x, (n_rows, n_cols) fp32, fp16 or bf16 with
    contiguous columns; weight is (n_cols,) of that dtype. The result goes to `out`, like x, where one is
    given; rows of both may be any number of elements apart. After Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    # BEGIN TODO 5: launch one program a row (about 2 lines)
    raise NotImplementedError("TODO 5: launch one program a row")
    # END TODO 5
    return out


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None, traced=False):
    """Gradients of rms_norm with respect to x and weight from dy, which is like x: the two in that order,
    written to `dx` and `dweight` where they are given.
    """
    dx, dweight = (torch.empty_like(y) if out is None else out for out, y in ((dx, x), (dweight, weight)))
    # BEGIN TODO 6: launch both kernels of the backward pass (about 11 lines)
    raise NotImplementedError("TODO 6: launch both kernels of the backward pass")
    # END TODO 6
    return dx, dweight


@triton_op("course::rms_norm", mutates_args=())
def forward_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps, traced=True)


@triton_op("course::rms_norm_backward", mutates_args=())
def backward_op(dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float) -> list[torch.Tensor]:
    """rms_norm_backward, likewise."""
    return list(rms_norm_backward(dy, x, weight, eps=eps, traced=True))


class RMSNorm(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        """y from x and weight."""
        # BEGIN TODO 7: the result, and what the gradient needs (about 3 lines)
        raise NotImplementedError("TODO 7: the result, and what the gradient needs")
        # END TODO 7

    @staticmethod
    def backward(ctx, dy):
        """dx and dweight from dy, and None for eps."""
        # BEGIN TODO 8: the gradients (about 2 lines)
        raise NotImplementedError("TODO 8: the gradients")
        # END TODO 8


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, for use under torch.compile, too."""
    return RMSNorm.apply(x, weight, eps)
