"""EXPECT PASS from layer_norm_linear_forward: statistics are summed in the loop of the matrix product"""

import rows
import tiles
import torch
import triton
import triton.language as tl
import weights


@triton.autotune(configs=rows.BY_LANES, key=["n_cols"], prune_configs_by={"early_config_prune": rows.fitting})
@triton.jit
def prepare_kernel(weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, sums_ptr, n_cols, stride,
                   TILE: tl.constexpr, TILES: tl.constexpr, LANES: tl.constexpr):  # fmt: skip
    weights.prepare_row(tl.program_id(axis=0), weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr,
                        sums_ptr, n_cols, stride, TILE, TILES, LANES)  # fmt: skip


@triton.jit
def near_means(x_ptr, m, M, K, stride, BLOCK_M: tl.constexpr):
    """A number near the mean of each row of a tile: differences from it keep the digits of the variance."""
    row = m + tl.arange(0, BLOCK_M)
    start, inside = x_ptr + row.to(tl.int64) * stride, row < M
    ends = rows.load(start, inside, KEEP=True) + rows.load(start + K - 1, inside, KEEP=True)
    middle = rows.load(start + K // 3, inside, KEEP=True) + rows.load(start + K // 2, inside, KEEP=True)
    return 0.25 * (ends + middle)


@triton.jit
def in_eights(d, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Sums of eight neighbours, which one thread holds: what is left to exchange waits for the loop's end."""
    return tl.sum(d.reshape(ROWS, COLS // 8, 8), axis=2)


@triton.autotune(tiles.BY_TILE, ["M", "N", "K"], prune_configs_by={"early_config_prune": tiles.fitting})
@triton.jit
def linear_kernel(x_ptr, scaled_ptr, out_ptr, sums_ptr, M, N, K, stride_x, stride_out, eps,
        TMA: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    x = tiles.described(x_ptr, M, K, stride_x, BLOCK_M, BLOCK_K, TMA)
    scaled = tiles.described(scaled_ptr, N, K, K, BLOCK_N, BLOCK_K, TMA)
    out = tiles.described(out_ptr, M, N, stride_out, BLOCK_M, BLOCK_N // 2, TMA)
    count = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(axis=0), count, tl.num_programs(axis=0), flatten=True):
        m, n = tiles.place(tile, M, N, BLOCK_M, BLOCK_N)
        near = near_means(x_ptr, m, M, K, stride_x, BLOCK_M)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        sums = tl.zeros((BLOCK_M, BLOCK_K // 8), dtype=tl.float32)
        squares = tl.zeros((BLOCK_M, BLOCK_K // 8), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = tiles.load_tile(x, m, k, M, K, stride_x, BLOCK_M, BLOCK_K, TMA)
            b = tiles.load_tile(scaled, n, k, N, K, K, BLOCK_N, BLOCK_K, TMA)
            acc = tl.dot(a, b.T, acc, input_precision="ieee")
            # Past the end of a row a is 0, and its difference from the number near the mean is not.
            inside = k + tl.arange(0, BLOCK_K)[None, :] < K
            d = tl.where(inside, a.to(tl.float32) - near[:, None], 0.0)
            sums += in_eights(d, BLOCK_M, BLOCK_K)
            squares += in_eights(d * d, BLOCK_M, BLOCK_K)
        off, power = tl.sum(sums, axis=1) / K, tl.sum(squares, axis=1) / K
        mean, rstd = near + off, tl.rsqrt(tl.maximum(power - off * off, 0.0) + eps)
        for left in tl.static_range(0, BLOCK_N, BLOCK_N // 2):
            total, shift = tiles.pairs(sums_ptr, n + left, N, BLOCK_N // 2)
            y = rstd[:, None] * (tiles.half(acc, left) - mean[:, None] * total[None, :]) + shift[None, :]
            tiles.store_tile(out, y, m, n + left, M, N, stride_out, BLOCK_M, BLOCK_N // 2, TMA)


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    (M, K), N = x.shape, weight.shape[0]
    out, _, scaled, sums = weights.scratch(x, weight, out)
    arguments = weight, gamma, beta, bias, scaled, sums, K, weight.stride(0)
    prepare_kernel[(N,)](*arguments, **rows.tiles(K))
    arguments = x, scaled, out, sums, M, N, K, x.stride(0), out.stride(0), eps
    linear_kernel[tiles.programs(x, M, N)](*arguments, tiles.describable(x, scaled, out, traced=False))
    return out
