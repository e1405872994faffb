"""EXPECT WRONG/MISMATCH from layer_norm_linear, hint 11: dweight from x, as it came"""

import rows
import tiles
import torch
import triton
import triton.language as tl


@triton.jit
def normalise_kernel(x_ptr, gamma_ptr, beta_ptr, z_ptr, stats_ptr, n_cols, stride, eps, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    total, squares = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        total += rows.load(x_ptr + row * stride + start + cols, start + cols < n_cols)
    mean = tl.sum(total, axis=0) / n_cols
    for start in range(0, n_cols, BLOCK):
        x = rows.load(x_ptr + row * stride + start + cols, start + cols < n_cols)
        squares += tl.where(start + cols < n_cols, (x - mean) * (x - mean), 0.0)
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)
    for start in range(0, n_cols, BLOCK):
        at, inside = start + cols, start + cols < n_cols
        n = (rows.load(x_ptr + row * stride + at, inside) - mean) * rstd
        z = n * rows.load(gamma_ptr + at, inside) + rows.load(beta_ptr + at, inside)
        rows.store(z_ptr + row * n_cols + at, z, inside)
    tl.store(stats_ptr + 2 * row, mean)
    tl.store(stats_ptr + 2 * row + 1, rstd)


@triton.jit
def linear_kernel(z_ptr, weight_ptr, bias_ptr, y_ptr, M, N, K, stride_weight,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tiles.load_tile(z_ptr, m, k, M, K, K, BLOCK_M, BLOCK_K, False)
        b = tiles.load_tile(weight_ptr, n, k, N, K, stride_weight, BLOCK_N, BLOCK_K, False)
        acc = tl.dot(a, b.T, acc, input_precision="ieee")
    cols = n + tl.arange(0, BLOCK_N)
    y = acc + rows.load(bias_ptr + cols, cols < N)[None, :]
    tiles.store_tile(y_ptr, y, m, n, M, N, N, BLOCK_M, BLOCK_N, False)


@triton.jit
def gradient_kernel(dz_ptr, x_ptr, gamma_ptr, stats_ptr, dx_ptr, products_ptr, n_cols, stride,
                    BLOCK: tl.constexpr):  # fmt: skip
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    mean, rstd = tl.load(stats_ptr + 2 * row), tl.load(stats_ptr + 2 * row + 1)
    sum_g, sum_gn = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        at, inside = start + cols, start + cols < n_cols
        g = rows.load(dz_ptr + row * n_cols + at, inside) * rows.load(gamma_ptr + at, inside)
        sum_g, sum_gn = sum_g + g, sum_gn + g * (rows.load(x_ptr + row * stride + at, inside) - mean) * rstd
    mean_g, mean_gn = tl.sum(sum_g, axis=0) / n_cols, tl.sum(sum_gn, axis=0) / n_cols
    for start in range(0, n_cols, BLOCK):
        at, inside = start + cols, start + cols < n_cols
        dz = rows.load(dz_ptr + row * n_cols + at, inside)
        n = (rows.load(x_ptr + row * stride + at, inside) - mean) * rstd
        dx = rstd * (dz * rows.load(gamma_ptr + at, inside) - mean_g - n * mean_gn)
        rows.store(dx_ptr + row * n_cols + at, dx, inside)
        tl.store(products_ptr + row * n_cols + at, dz * n, mask=inside)


class LayerNormLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        (M, K), N = x.shape, weight.shape[0]
        z, y = (torch.empty((M, width), dtype=x.dtype, device=x.device) for width in (K, N))
        stats = torch.empty((M, 2), dtype=torch.float32, device=x.device)
        normalise_kernel[(M,)](x, gamma, beta, z, stats, K, x.stride(0), eps, BLOCK=1024)
        grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
        arguments = z, weight, bias, y, M, N, K, weight.stride(0)
        linear_kernel[grid](*arguments, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
        ctx.save_for_backward(x, gamma, weight, stats)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, gamma, weight, stats = ctx.saved_tensors
        dy, (M, K) = dy.contiguous(), x.shape
        dz, dx = torch.mm(dy, weight), torch.empty((M, K), dtype=x.dtype, device=x.device)
        products = torch.empty((M, K), dtype=torch.float32, device=x.device)
        gradient_kernel[(M,)](dz, x, gamma, stats, dx, products, K, x.stride(0), BLOCK=1024)
        # a sum over rows is a product with ones
        ones, ones_32 = (torch.full((M, 1), 1.0, dtype=one.dtype, device=x.device) for one in (x, products))
        dgamma = torch.mm(products.t(), ones_32).view(-1).to(x.dtype)
        dbeta, dbias = torch.mm(dz.t(), ones).view(-1), torch.mm(dy.t(), ones).view(-1)
        return dx, dgamma, dbeta, torch.mm(dy.t(), x), dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps=1e-5):
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
