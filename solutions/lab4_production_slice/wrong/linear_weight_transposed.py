"""EXPECT WRONG/MISMATCH from layer_norm_linear_forward, hint 11: the weight is read as (n_cols, n_out)"""

import rows
import tiles
import triton
import triton.language as tl
import weights


@triton.jit
def statistics_kernel(x_ptr, stats_ptr, n_cols, stride, eps, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        total += rows.load(x_ptr + row * stride + start + cols, start + cols < n_cols)
    mean = tl.sum(total, axis=0) / n_cols
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        x = rows.load(x_ptr + row * stride + start + cols, start + cols < n_cols)
        squares += tl.where(start + cols < n_cols, (x - mean) * (x - mean), 0.0)
    var = tl.sum(squares, axis=0) / n_cols
    tl.store(stats_ptr + 2 * row, mean)
    tl.store(stats_ptr + 2 * row + 1, tl.rsqrt(var + eps))


@triton.jit
def weight_kernel(weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, sums_ptr, n_cols, stride,
                  TILE: tl.constexpr, TILES: tl.constexpr, LANES: tl.constexpr):  # fmt: skip
    weights.prepare_row(tl.program_id(0), weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, sums_ptr,
                        n_cols, stride, TILE, TILES, LANES)  # fmt: skip


@triton.jit
def linear_kernel(x_ptr, scaled_ptr, out_ptr, stats_ptr, sums_ptr, M, N, K, stride_x, stride_out,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tiles.load_tile(x_ptr, m, k, M, K, stride_x, BLOCK_M, BLOCK_K, False)
        b = tiles.load_tile(scaled_ptr, k, n, K, N, N, BLOCK_K, BLOCK_N, False)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    mean, rstd = tiles.pairs(stats_ptr, m, M, BLOCK_M)
    total, shift = tiles.pairs(sums_ptr, n, N, BLOCK_N)
    y = rstd[:, None] * (acc - mean[:, None] * total[None, :]) + shift[None, :]
    tiles.store_tile(out_ptr, y, m, n, M, N, stride_out, BLOCK_M, BLOCK_N, False)


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps=1e-5, out=None):
    (M, K), N = x.shape, weight.shape[0]
    out, stats, scaled, sums = weights.scratch(x, weight, out)
    statistics_kernel[(M,)](x, stats, K, x.stride(0), eps, BLOCK=1024)
    arguments = weight, gamma, beta, bias, scaled, sums, K, weight.stride(0)
    weight_kernel[(N,)](*arguments, LANES=256, **rows.tiles(K))
    arguments = x, scaled, out, stats, sums, M, N, K, x.stride(0), out.stride(0)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
    linear_kernel[grid](*arguments, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
    return out
