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
        x_row, cols = x_ptr + row.to(tl.int64) * stride_x, columns(TILE, LANES)
        near, sums = near_mean(x_row, n_cols), tl.zeros((LANES,), dtype=tl.float32)
        squares = sums
        for i in range(TILES):
            inside = i * TILE + cols < n_cols
            d = tl.where(inside, load(x_row + i * TILE + cols, inside, KEEP=True) - near, 0.0)
            sums, squares = sums + tl.sum(d, axis=0), squares + tl.sum(d * d, axis=0)
        off, rstd = moments(tl.sum(sums, axis=0), tl.sum(squares, axis=0), n_cols, eps)
        tl.store(stats_ptr + 2 * row, near + off)
        tl.store(stats_ptr + 2 * row + 1, rstd)
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
    x = described(x_ptr, M, K, stride_x, BLOCK_M, BLOCK_K, TMA)
    scaled = described(scaled_ptr, N, K, K, BLOCK_N, BLOCK_K, TMA)
    out = described(out_ptr, M, N, stride_out, BLOCK_M, BLOCK_N // 2, TMA)
    # In the order of lab 3, eight rows of tiles to a group.
    count, group = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N), 8 * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(axis=0), count, tl.num_programs(axis=0), flatten=True):
        height = min(tl.cdiv(M, BLOCK_M) - tile // group * 8, 8)
        m, n = (tile // group * 8 + tile % group % height) * BLOCK_M, tile % group // height * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = load_tile(x, m, k, M, K, stride_x, BLOCK_M, BLOCK_K, TMA)
            b = load_tile(scaled, n, k, N, K, K, BLOCK_N, BLOCK_K, TMA)
            acc = tl.dot(a, b.T, acc, input_precision="ieee")
        mean, rstd = pairs(stats_ptr, m, M, BLOCK_M)
        # Half a tile at a time: two numbers for each of its columns would not fit beside the whole.
        for left in tl.static_range(0, BLOCK_N, BLOCK_N // 2):
            total, shift = pairs(sums_ptr, n + left, N, BLOCK_N // 2)
            y = rstd[:, None] * (half(acc, left) - mean[:, None] * total[None, :]) + shift[None, :]
            store_tile(out, y, m, n + left, M, N, stride_out, BLOCK_M, BLOCK_N // 2, TMA)
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
    sums, products = tl.zeros((LANES,), dtype=tl.float32), tl.zeros((LANES,), dtype=tl.float32)
    for i in range(TILES):
        at = i * TILE + cols
        g, x = load(g_ptr + row * n_cols + at, at < n_cols), load(x_ptr + row * stride_x + at, at < n_cols)
        sums, products = sums + tl.sum(g, axis=0), products + tl.sum(g * (x - mean), axis=0)
    mean_g, slope = tl.sum(sums, axis=0) / n_cols, tl.sum(products, axis=0) * rstd * rstd / n_cols
    for i in range(TILES):
        at = i * TILE + cols
        g, x = load(g_ptr + row * n_cols + at, at < n_cols), load(x_ptr + row * stride_x + at, at < n_cols)
        store(dx_ptr + row * n_cols + at, rstd * (g - mean_g - (x - mean) * slope), at < n_cols)
    # END TODO 3
    scale_row(row, dy_ptr, means_ptr, scaled_ptr, mean, rstd, n_weights, stride_dy, cols, TILE)


def fused(x, gamma, beta, weight, bias, eps, out=None, traced=False) -> list[torch.Tensor]:
    """The result, mean and 1 / sqrt(variance + eps) of each row, (n_rows, 2) fp32, and gamma * weight."""
    (M, K), N = x.shape, weight.shape[0]
    out, stats, scaled, sums = scratch(x, weight, out)
    # BEGIN TODO 4: both launches, one program a row and a persistent grid (about 5 lines)
    arguments = x, gamma, beta, weight, bias, stats, scaled, sums, M, K, x.stride(0), weight.stride(0), eps
    rows.on(prepare_kernel, traced)[(M + N,)](*arguments, **rows.tiles(K))
    arguments = x, scaled, out, stats, sums, M, N, K, x.stride(0), out.stride(0)
    launch = rows.on(linear_kernel, traced)[tiles.programs(x, M, N)]
    launch(*arguments, tiles.describable(x, scaled, out, traced=traced))
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
    (M, K), N = x.shape, weight.shape[0]
    dx, means, dn = (torch.empty((M, width), device=x.device, dtype=x.dtype) for width in (K, 2, N))
    arguments = torch.mm(dy, scaled), dy, x, stats, dx, means, dn, K, N, x.stride(0), dy.stride(0)
    rows.on(gradient_kernel, True)[(M,)](*arguments, **rows.tiles(K))
    return [dx, *weight_gradients(dy, x, dn, means, gamma, beta, weight, True)]
    # END TODO 5


class LayerNormLinear(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        """y from x, gamma, beta, weight and bias."""
        # BEGIN TODO 6: the result, and what the gradient needs (about 3 lines)
        y, *kept = forward_op(x, gamma, beta, weight, bias, eps)
        ctx.save_for_backward(x, gamma, beta, weight, *kept)
        return y
        # END TODO 6

    @staticmethod
    def backward(ctx, dy):
        """dx, dgamma, dbeta, dweight and dbias from dy, and None for eps."""
        # BEGIN TODO 7: the gradients (about 1 line)
        return *backward_op(dy.contiguous(), *ctx.saved_tensors), None
        # END TODO 7


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, for use under torch.compile, too."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
