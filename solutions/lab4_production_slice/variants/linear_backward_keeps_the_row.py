"""EXPECT PASS from layer_norm_linear: normalised rows are stored, in the backward once more"""

import rows
import tiles
import torch
import triton
import triton.language as tl


@triton.jit
def normalise_kernel(x_ptr, gamma_ptr, beta_ptr, z_ptr, stats_ptr, n_cols, stride, eps, BLOCK: tl.constexpr):
    """Row of layer_norm(x) to z; mean and 1 / sqrt(variance + eps) to stats."""
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, BLOCK)
    total, squares = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for k in range(0, n_cols, BLOCK):
        total += rows.load(x_ptr + row * stride + k + cols, k + cols < n_cols)
    mean = tl.sum(total, axis=0) / n_cols
    for k in range(0, n_cols, BLOCK):
        x = rows.load(x_ptr + row * stride + k + cols, k + cols < n_cols)
        squares += tl.where(k + cols < n_cols, (x - mean) * (x - mean), 0.0)
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)
    for k in range(0, n_cols, BLOCK):
        at, inside = k + cols, k + cols < n_cols
        n = (rows.load(x_ptr + row * stride + at, inside) - mean) * rstd
        z = n * rows.load(gamma_ptr + at, inside) + rows.load(beta_ptr + at, inside)
        rows.store(z_ptr + row * n_cols + at, z, inside)
    tl.store(stats_ptr + 2 * row, mean)
    tl.store(stats_ptr + 2 * row + 1, rstd)


@triton.jit
def linear_kernel(z_ptr, weight_ptr, bias_ptr, y_ptr, M, N, K, stride_weight,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    m, n = tl.program_id(axis=0) * BLOCK_M, tl.program_id(axis=1) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tiles.load_tile(z_ptr, m, k, M, K, K, BLOCK_M, BLOCK_K, False)
        b = tiles.load_tile(weight_ptr, n, k, N, K, stride_weight, BLOCK_N, BLOCK_K, False)
        acc = tl.dot(a, b.T, acc, input_precision="ieee")
    cols = n + tl.arange(0, BLOCK_N)
    y = acc + rows.load(bias_ptr + cols, cols < N)[None, :]
    tiles.store_tile(y_ptr, y, m, n, M, N, N, BLOCK_M, BLOCK_N, False)


@triton.jit
def dx_kernel(dz_ptr, x_ptr, gamma_ptr, stats_ptr, dx_ptr, n_cols, stride, BLOCK: tl.constexpr):
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, BLOCK)
    mean, rstd = tl.load(stats_ptr + 2 * row), tl.load(stats_ptr + 2 * row + 1)
    sums, products = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for k in range(0, n_cols, BLOCK):
        at, inside = k + cols, k + cols < n_cols
        g = rows.load(dz_ptr + row * n_cols + at, inside) * rows.load(gamma_ptr + at, inside)
        sums, products = sums + g, products + g * (rows.load(x_ptr + row * stride + at, inside) - mean) * rstd
    mean_g, mean_gn = tl.sum(sums, axis=0) / n_cols, tl.sum(products, axis=0) / n_cols
    for k in range(0, n_cols, BLOCK):
        at, inside = k + cols, k + cols < n_cols
        g = rows.load(dz_ptr + row * n_cols + at, inside) * rows.load(gamma_ptr + at, inside)
        n = (rows.load(x_ptr + row * stride + at, inside) - mean) * rstd
        rows.store(dx_ptr + row * n_cols + at, rstd * (g - mean_g - n * mean_gn), inside)


@triton.jit
def column_sums_kernel(d_ptr, x_ptr, stats_ptr, scaled_ptr, plain_ptr, n_rows, n_cols, stride,
                       ROWS: tl.constexpr, COLS: tl.constexpr):  # fmt: skip
    """Sums over the rows of d, and, where there is a place for them, of d times the normalised rows of x."""
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)[None, :]
    plain, scaled = tl.zeros((ROWS, COLS), tl.float32), tl.zeros((ROWS, COLS), tl.float32)
    for start in range(0, n_rows, ROWS):
        row = start + tl.arange(0, ROWS).to(tl.int64)[:, None]
        inside = (row < n_rows) & (cols < n_cols)
        d = rows.load(d_ptr + row * n_cols + cols, inside)
        plain += d
        if scaled_ptr is not None:
            mean, rstd = tiles.pairs(stats_ptr, start, n_rows, ROWS)
            x = rows.load(x_ptr + row * stride + cols, inside)
            scaled += d * (x - mean[:, None]) * rstd[:, None]
    at = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    rows.store(plain_ptr + at, tl.sum(plain, axis=0), at < n_cols)
    if scaled_ptr is not None:
        rows.store(scaled_ptr + at, tl.sum(scaled, axis=0), at < n_cols)


def normalised(x, gamma, beta, eps):
    """The rows that the matrix product takes, and their statistics."""
    z = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    stats = torch.empty((x.shape[0], 2), dtype=torch.float32, device=x.device)
    normalise_kernel[(x.shape[0],)](x, gamma, beta, z, stats, x.shape[1], x.stride(0), eps, BLOCK=2048)
    return z, stats


class LayerNormLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        ctx.save_for_backward(x, gamma, beta, weight, bias)
        ctx.eps = eps
        (M, K), N = x.shape, weight.shape[0]
        z, _ = normalised(x, gamma, beta, eps)
        y = torch.empty((M, N), dtype=x.dtype, device=x.device)
        arguments = z, weight, bias, y, M, N, K, weight.stride(0)
        grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
        linear_kernel[grid](*arguments, BLOCK_M=64, BLOCK_N=64, BLOCK_K=64)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, gamma, beta, weight, bias = ctx.saved_tensors
        (M, K), N, dy = x.shape, weight.shape[0], dy.contiguous()
        dgamma, dbeta, dbias = torch.empty_like(gamma), torch.empty_like(beta), torch.empty_like(bias)
        dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        z, stats = normalised(x, gamma, beta, ctx.eps)
        dz, dweight = torch.mm(dy, weight), torch.mm(dy.t(), z)
        dx_kernel[(M,)](dz, x, gamma, stats, dx, K, x.stride(0), BLOCK=2048)
        arguments = dz, x, stats, dgamma, dbeta, M, K, x.stride(0)
        column_sums_kernel[(triton.cdiv(K, 128),)](*arguments, ROWS=32, COLS=128)
        arguments = dy, None, None, None, dbias, M, N, 0
        column_sums_kernel[(triton.cdiv(N, 128),)](*arguments, ROWS=32, COLS=128)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5):
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
