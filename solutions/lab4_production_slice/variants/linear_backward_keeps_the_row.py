"""EXPECT PASS from layer_norm_linear: normalised rows are stored, in the backward once more"""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import block_of, load, store


@triton.jit
def normalise_kernel(x_ptr, gamma_ptr, beta_ptr, z_ptr, mean_ptr, rstd_ptr, stride_x, eps,
                     N_COLS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Row i of layer_norm(x) to z, its mean and 1 / sqrt(variance + eps) to two fp32 vectors."""
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_ptr + row * stride_x, cols, N_COLS) - mean) * rstd
        z = n * load(gamma_ptr, cols, N_COLS) + load(beta_ptr, cols, N_COLS)
        store(z_ptr + row * N_COLS, cols, N_COLS, z)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def linear_kernel(z_ptr, weight_ptr, bias_ptr, y_ptr, M, N, K, stride_weight, BLOCK_M: tl.constexpr,
                  BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    rows = tl.program_id(axis=0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    y = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        z = tl.load(z_ptr + rows * K + k, mask=(rows < M) & (k < K), other=0.0)
        weight_ptrs = weight_ptr + cols * stride_weight + k[:, None]
        weight = tl.load(weight_ptrs, mask=(cols < N) & (k[:, None] < K), other=0.0)
        y = tl.dot(z, weight, y, input_precision="ieee")
    y += load(bias_ptr, cols, N)
    tl.store(y_ptr + rows * N + cols, y.to(y_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def dx_kernel(dz_ptr, x_ptr, gamma_ptr, mean_ptr, rstd_ptr, dx_ptr, stride_x, N_COLS: tl.constexpr,
              BLOCK: tl.constexpr):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)
    sum_g = 0.0
    sum_gn = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        # Past the end of a row g is 0.
        g = load(dz_ptr + row * N_COLS, cols, N_COLS) * load(gamma_ptr, cols, N_COLS)
        n = (load(x_ptr + row * stride_x, cols, N_COLS) - mean) * rstd
        sum_g += tl.sum(g, axis=0)
        sum_gn += tl.sum(g * n, axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g = load(dz_ptr + row * N_COLS, cols, N_COLS) * load(gamma_ptr, cols, N_COLS)
        n = (load(x_ptr + row * stride_x, cols, N_COLS) - mean) * rstd
        store(dx_ptr + row * N_COLS, cols, N_COLS, rstd * (g - (sum_g + n * sum_gn) / N_COLS))


@triton.jit
def sums_kernel(d_ptr, x_ptr, mean_ptr, rstd_ptr, scaled_ptr, plain_ptr, n_rows, n_cols, stride_x,
                ROWS: tl.constexpr, COLS: tl.constexpr):  # fmt: skip
    """Sums over the rows of d, and, where there is a place for them, of d times the normalised rows of x."""
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    plain = tl.zeros((ROWS, COLS), dtype=tl.float32)
    scaled = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(0, n_rows, ROWS):
        rows = start + tl.arange(0, ROWS)[:, None].to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        d = tl.load(d_ptr + rows * n_cols + cols, mask=inside, other=0.0).to(tl.float32)
        plain += d
        if scaled_ptr is not None:
            x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
            mean = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)
            rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
            scaled += d * (x - mean) * rstd
    store(plain_ptr, cols, n_cols, tl.sum(plain, axis=0))
    if scaled_ptr is not None:
        store(scaled_ptr, cols, n_cols, tl.sum(scaled, axis=0))


def normalised(x, gamma, beta, eps):
    """The rows that the matrix product takes, and the mean and 1 / deviation of each."""
    n_rows, n_cols = x.shape
    z = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    mean, rstd = torch.empty((2, n_rows), dtype=torch.float32, device=x.device)
    arguments = x, gamma, beta, z, mean, rstd, x.stride(0), eps
    normalise_kernel[(n_rows,)](*arguments, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return z, mean, rstd


class LayerNormLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        ctx.save_for_backward(x, gamma, beta, weight)
        ctx.eps = eps
        (M, K), N = x.shape, weight.shape[0]
        z, _, _ = normalised(x, gamma, beta, eps)
        y = torch.empty((M, N), dtype=x.dtype, device=x.device)
        arguments = z, weight, bias, y, M, N, K, weight.stride(0)
        grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
        linear_kernel[grid](*arguments, BLOCK_M=64, BLOCK_N=64, BLOCK_K=64)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, gamma, beta, weight = ctx.saved_tensors
        (M, K), N, dy = x.shape, weight.shape[0], dy.contiguous()
        dgamma, dbeta = torch.empty_like(gamma), torch.empty_like(beta)
        dbias = torch.empty((N,), dtype=dy.dtype, device=dy.device)
        dx = torch.empty((M, K), dtype=x.dtype, device=x.device)
        z, mean, rstd = normalised(x, gamma, beta, ctx.eps)
        dz, dweight = torch.mm(dy, weight), torch.mm(dy.t(), z)
        arguments = dz, x, gamma, mean, rstd, dx, x.stride(0)
        dx_kernel[(M,)](*arguments, N_COLS=K, BLOCK=block_of(K))
        arguments = dz, x, mean, rstd, dgamma, dbeta, M, K, x.stride(0)
        sums_kernel[(triton.cdiv(K, 128),)](*arguments, ROWS=32, COLS=128)
        arguments = dy, None, None, None, None, dbias, M, N, 0
        sums_kernel[(triton.cdiv(N, 128),)](*arguments, ROWS=32, COLS=128)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5):
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
