"""EXPECT POLICY/FOREIGN_KERNEL from layer_norm_linear: C1 one of the two permitted products runs in the forward pass, one stacked product gives both gradients"""

import torch
import triton
import triton.language as tl
from rows import block_of, column_sums, load, store


@triton.jit
def moments(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row and 1 / sqrt(variance + eps), in fp32."""
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        total += load(x_row, start + tl.arange(0, BLOCK), N_COLS)
    mean = tl.sum(total, axis=0) / N_COLS
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        apart = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        squares += apart * apart
    return mean, tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))


@triton.jit
def norm_kernel(
    x_ptr, gamma_ptr, beta_ptr, z_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """z = (x - mean) * rstd * gamma + beta in fp32; program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    mean, rstd = moments(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        z = (load(x_row, cols, N_COLS) - mean) * rstd * load(gamma_ptr, cols, N_COLS)
        store(z_ptr + row * N_COLS, cols, N_COLS, z + load(beta_ptr, cols, N_COLS))


@triton.jit
def place_kernel(from_ptr, to_ptr, n_cols, stride_from, stride_row, stride_col, BLOCK: tl.constexpr):
    """to[i * stride_row + j * stride_col] = from[i, j], in the dtype of `to`; program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK).to(tl.int64)
        values = tl.load(from_ptr + row * stride_from + cols, mask=cols < n_cols)
        place = to_ptr + row * stride_row + cols * stride_col
        tl.store(place, values.to(to_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def bias_kernel(product_ptr, bias_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    """y = product + bias; program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = load(product_ptr + row * n_cols, cols, n_cols) + load(bias_ptr, cols, n_cols)
        store(y_ptr + row * n_cols, cols, n_cols, y)


@triton.jit
def dx_kernel(
    dz_ptr, x_ptr, gamma_ptr, dx_ptr, terms_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx of the norm, and dz times the normalised row to terms; program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, dz_row = x_ptr + row * stride_x, dz_ptr + row * N_COLS
    mean, rstd = moments(x_row, eps, N_COLS, BLOCK)
    sum_g = tl.zeros((BLOCK,), dtype=tl.float32)
    sum_gn = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g = load(dz_row, cols, N_COLS) * load(gamma_ptr, cols, N_COLS)
        sum_g += g
        sum_gn += g * (load(x_row, cols, N_COLS) - mean) * rstd
    mean_g, mean_gn = tl.sum(sum_g, axis=0) / N_COLS, tl.sum(sum_gn, axis=0) / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dz = load(dz_row, cols, N_COLS)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        dx = rstd * (dz * load(gamma_ptr, cols, N_COLS) - mean_g - n * mean_gn)
        store(dx_ptr + row * N_COLS, cols, N_COLS, dx)
        store(terms_ptr + row * N_COLS, cols, N_COLS, dz * n)


class LayerNormLinear(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        """Return y for x: the first product is cuBLAS's."""
        (M, K), N, block = x.shape, weight.shape[0], block_of(x.shape[1])
        # Rows 0 to N - 1 are the weight, the M rows behind it the norm's result.
        right = x.new_empty((N + M, K), dtype=torch.float32)
        place_kernel[(N,)](weight, right, K, weight.stride(0), K, 1, BLOCK=1024)
        norm_kernel[(M,)](x, gamma, beta, right[N:], x.stride(0), eps, N_COLS=K, BLOCK=block)
        product = torch.mm(right[N:], right[:N].t())
        y = x.new_empty((M, N))
        bias_kernel[(M,)](product, bias, y, N, BLOCK=1024)
        ctx.save_for_backward(x, gamma, right)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dgamma, dbeta, dweight and dbias: both products are one call of cuBLAS's."""
        x, gamma, right = ctx.saved_tensors
        dy = dy.contiguous()
        (M, N), K = dy.shape, x.shape[1]
        wide = N + M
        # ((dy, 0), (0, dy.T)) @ (weight, z) = (dz, dweight)
        left = x.new_zeros((M + N, wide), dtype=torch.float32)
        place_kernel[(M,)](dy, left, N, N, wide, 1, BLOCK=1024)
        place_kernel[(M,)](dy, left[M:, N:], N, N, 1, wide, BLOCK=1024)
        both = torch.mm(left, right)
        dx, terms = x.new_empty((M, K)), x.new_empty((M, K), dtype=torch.float32)
        dx_kernel[(M,)](
            both, x, gamma, dx, terms, x.stride(0), ctx.eps, N_COLS=K, BLOCK=block_of(K)
        )
        dgamma, dbeta, dbias = x.new_empty((K,)), x.new_empty((K,)), x.new_empty((N,))
        column_sums(terms, dgamma)
        column_sums(both[:M], dbeta)
        column_sums(dy, dbias)
        dweight = x.new_empty((N, K))
        place_kernel[(N,)](both[M:], dweight, K, K, K, 1, BLOCK=1024)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
