"""LayerNorm and the Linear layer behind it as one matrix product: forward, and differentiable."""

import rows
import tiles
import torch
import triton
import triton.language as tl
from rows import columns, load, moments, near_mean, store
from tiles import described, half, load_tile, pairs, store_tile
from weights import prepare_row, scale_row, scratch, weight_gradients


@triton.autotune(configs=rows.BY_LANES, key=["n_cols"], prune_configs_by={"early_config_prune": rows.fitting})
@triton.jit
def prepare_kernel(x_ptr, gamma_ptr, beta_ptr, weight_ptr, bias_ptr, stats_ptr, scaled_ptr, sums_ptr, n_rows,
                   n_cols, stride_x, stride_weight, eps, TILE: tl.constexpr, TILES: tl.constexpr,
                   LANES: tl.constexpr):  # fmt: skip
    """Program i < n_rows owns row i of x, and each program after them one row of the weight.

    stats is (n_rows, 2) fp32: the mean of a row and 1 / sqrt(variance + eps). What the others leave is said
    in weights.prepare_row.
    """
    row = tl.program_id(axis=0)
    if row < n_rows:
        # BEGIN TODO 1: mean and 1 / sqrt(variance + eps) of the row (about 10 lines)
        tl.static_assert(False, "TODO 1: mean and 1 / sqrt(variance + eps) of the row")
        # END TODO 1
    else:
        prepare_row(row - n_rows, weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, sums_ptr,
                            n_cols, stride_weight, TILE, TILES, LANES)  # fmt: skip


@triton.autotune(tiles.BY_TILE, ["M", "N", "K"], prune_configs_by={"early_config_prune": tiles.fitting})
@triton.jit
def linear_kernel(x_ptr, scaled_ptr, out_ptr, stats_ptr, sums_ptr, M, N, K, stride_x, stride_out,
        TMA: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """out = rstd * (x @ scaled.T - mean * total) + shift: mean and rstd of each row, total and shift of each
    column are the pairs in stats and in sums.

    x is (M, K), scaled (N, K), out (M, N), of one dtype, columns contiguous; stats (M, 2) and sums (N, 2) are
    fp32. Program i takes tiles i, i + programs and so on.
    """
    # BEGIN TODO 2: the tiles of out, one after the other (about 20 lines)
    tl.static_assert(False, "TODO 2: the tiles of out, one after the other")
    # END TODO 2


@triton.autotune(configs=rows.BY_LANES, key=["n_cols"], prune_configs_by={"early_config_prune": rows.fitting})
@triton.jit
def gradient_kernel(g_ptr, dy_ptr, x_ptr, stats_ptr, dx_ptr, means_ptr, scaled_ptr, n_cols, n_weights,
        stride_x, stride_dy, TILE: tl.constexpr, TILES: tl.constexpr, LANES: tl.constexpr):  # fmt: skip
    """dx = rstd * (g - mean(g) - n * mean(g * n)), with n the normalised row and g = dy @ (gamma * weight)
    the gradient for it; program i owns row i. It leaves the same row of rstd * dy, see weights.scale_row.
    """
    row, cols = tl.program_id(axis=0).to(tl.int64), columns(TILE, LANES)
    mean, rstd = tl.load(stats_ptr + 2 * row), tl.load(stats_ptr + 2 * row + 1)
    # BEGIN TODO 3: dx of the row (about 10 lines)
    tl.static_assert(False, "TODO 3: dx of the row")
    # END TODO 3
    scale_row(row, dy_ptr, means_ptr, scaled_ptr, mean, rstd, n_weights, stride_dy, cols, TILE)


def fused(x, gamma, beta, weight, bias, eps, out=None, traced=False) -> list[torch.Tensor]:
    """The result, mean and 1 / sqrt(variance + eps) of each row, (n_rows, 2) fp32, and gamma * weight."""
    (M, K), N = x.shape, weight.shape[0]
    out, stats, scaled, sums = scratch(x, weight, out)
    # BEGIN TODO 4: both launches, one program a row and a persistent grid (about 5 lines)
    raise NotImplementedError("TODO 4: both launches, one program a row and a persistent grid")
    # END TODO 4
    return [out, stats, scaled]


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x, gamma, beta, eps) @ weight.T + bias for x (n_rows, n_cols), weight (n_out, n_cols), gamma
    and beta (n_cols,) and bias (n_out,), of one dtype, fp32, fp16 or bf16, columns contiguous. The result
    goes to `out`, (n_rows, n_out), where one is given; rows of x, weight and out may be any number of
    elements apart. No normalised row is stored: out = rstd * (x @ (gamma * weight).T - mean * sums) + shift.
    """
    return fused(x, gamma, beta, weight, bias, eps, out)[0]


@torch.library.triton_op("course::layer_norm_linear", mutates_args=())
def forward_op(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, weight: torch.Tensor,
        bias: torch.Tensor, eps: float) -> list[torch.Tensor]:  # fmt: skip
    """The result, and what its gradient needs, as an operator that torch.compile can look into."""
    return fused(x, gamma, beta, weight, bias, eps, traced=True)


@torch.library.triton_op("course::layer_norm_linear_backward", mutates_args=())
def backward_op(dy: torch.Tensor, x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor,
        weight: torch.Tensor, stats: torch.Tensor, scaled: torch.Tensor) -> list[torch.Tensor]:  # fmt: skip
    """dx, dgamma, dbeta, dweight and dbias, likewise; the matrix products are torch's."""
    # BEGIN TODO 5: dx, and what weight_gradients makes the other four from (about 5 lines)
    raise NotImplementedError("TODO 5: dx, and what weight_gradients makes the other four from")
    # END TODO 5


class LayerNormLinear(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        """y from x, gamma, beta, weight and bias."""
        # BEGIN TODO 6: the result, and what the gradient needs (about 3 lines)
        raise NotImplementedError("TODO 6: the result, and what the gradient needs")
        # END TODO 6

    @staticmethod
    def backward(ctx, dy):
        """dx, dgamma, dbeta, dweight and dbias from dy, and None for eps."""
        # BEGIN TODO 7: the gradients (about 1 line)
        raise NotImplementedError("TODO 7: the gradients")
        # END TODO 7


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, for use under torch.compile, too."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
