"""The parts of LayerNorm + Linear that are as small as the weight: its preparation, and its gradients."""

# GIVEN: nothing to complete here; layer_norm_linear.py imports it.

import torch
import triton
import triton.language as tl
from rows import columns, load, on, store


@triton.jit
def prepare_row(row, weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, sums_ptr, n_cols, stride,
                TILE: tl.constexpr, TILES: tl.constexpr, LANES: tl.constexpr):  # fmt: skip
    """Row of gamma * weight, rounded to its dtype, to the matrix at scaled_ptr. The sum of what was rounded
    goes to sums[row, 0], and that of beta * weight, plus the bias, to sums[row, 1]; sums is (n_rows, 2) fp32.
    """
    cols, total = columns(TILE, LANES), tl.zeros((LANES,), dtype=tl.float32)
    shift = total
    for i in range(TILES):
        at = i * TILE + cols
        w = load(weight_ptr + row.to(tl.int64) * stride + at, at < n_cols)
        scaled = w * load(gamma_ptr + at, at < n_cols, KEEP=True)
        scaled = scaled.to(scaled_ptr.dtype.element_ty)
        tl.store(scaled_ptr + row.to(tl.int64) * n_cols + at, scaled, mask=at < n_cols)
        total += tl.sum(scaled.to(tl.float32), axis=0)
        shift += tl.sum(w * load(beta_ptr + at, at < n_cols, KEEP=True), axis=0)
    tl.store(sums_ptr + 2 * row, tl.sum(total, axis=0))
    tl.store(sums_ptr + 2 * row + 1, tl.sum(shift, axis=0) + tl.load(bias_ptr + row).to(tl.float32))


@triton.jit
def scale_row(row, dy_ptr, means_ptr, scaled_ptr, mean, rstd, n_cols, stride, cols, TILE: tl.constexpr):
    """rstd * dy of a row, rounded to its dtype, to the matrix at scaled_ptr; the mean goes to means[row, :],
    (n_rows, 2) of that dtype: what it is rounded to, and what was lost.
    """
    for start in range(0, n_cols, TILE):
        at = start + cols
        dy = load(dy_ptr + row * stride + at, at < n_cols)
        store(scaled_ptr + row * n_cols + at, rstd * dy, at < n_cols)
    high = mean.to(means_ptr.dtype.element_ty)
    tl.store(means_ptr + 2 * row, high)
    tl.store(means_ptr + 2 * row + 1, (mean - high.to(tl.float32)).to(means_ptr.dtype.element_ty))


@triton.jit
def weight_gradient_kernel(
    products_ptr, offs_ptr, sums_ptr, weight_ptr, gamma_ptr, beta_ptr, dgamma_ptr, dbeta_ptr, dweight_ptr,
    dbias_ptr, n_rows, n_cols, stride_w, stride_dw, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """From G = dy.T @ n, n the normalised rows of x, and s, the sums of dy over its rows: dweight = G * gamma
    + s * beta, dgamma = sum of weight * G over its rows, dbeta of weight * s, dbias = s. Program k owns COLS
    columns. G is products less both columns of offs; all three are fp32, products (n_rows, n_cols), offs
    (n_rows, 2), sums (n_rows, 1).
    """
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    gamma, beta = load(gamma_ptr + cols, cols < n_cols), load(beta_ptr + cols, cols < n_cols)
    dgamma = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbeta = dgamma
    for start in range(0, n_rows, ROWS):
        row = start + tl.arange(0, ROWS)[:, None].to(tl.int64)
        inside = (row < n_rows) & (cols < n_cols)
        s, off = load(sums_ptr + row, row < n_rows), load(offs_ptr + 2 * row, row < n_rows)
        off += load(offs_ptr + 2 * row + 1, row < n_rows)
        g = tl.where(inside, load(products_ptr + row * n_cols + cols, inside) - off, 0.0)
        w = load(weight_ptr + row * stride_w + cols, inside)
        store(dweight_ptr + row * stride_dw + cols, g * gamma + s * beta, inside)
        store(dbias_ptr + row, s, (row < n_rows) & (tl.program_id(axis=0) == 0))
        dgamma, dbeta = dgamma + w * g, dbeta + w * s
    store(dgamma_ptr + cols, tl.sum(dgamma, axis=0), cols < n_cols)
    store(dbeta_ptr + cols, tl.sum(dbeta, axis=0), cols < n_cols)


def scratch(x, weight, out=None):
    """The result, where none is given, and what the kernels before it leave: two fp32 numbers for each row of
    x; gamma * weight; and two fp32 sums for each row of that.
    """
    M, (N, K) = x.shape[0], weight.shape
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    stats, sums = (torch.empty(size, device=x.device, dtype=torch.float32) for size in ((M, 2), (N, 2)))
    return out, stats, torch.empty((N, K), device=x.device, dtype=x.dtype), sums


def _product(a, b):
    """a @ b in fp32, which cuBLAS gives for 16 bits, too."""
    if a.is_cuda and a.dtype != torch.float32:
        return torch.mm(a, b, out_dtype=torch.float32)
    return torch.mm(a.to(torch.float32), b.to(torch.float32))


def weight_gradients(dy, x, scaled, means, gamma, beta, weight, traced):
    """Gradients of gamma, beta, weight and bias, in that order, from what scale_row left."""
    n_rows, n_cols = weight.shape
    dgamma, dbeta, dweight, dbias = (torch.empty_like(one) for one in (gamma, beta, weight, weight[:, 0]))
    # G = (rstd * dy).T @ (x - mean): the mean comes off after the product. fp32 sums keep the digits.
    products, offs = _product(scaled.t(), x), _product(scaled.t(), means)
    sums = _product(dy.t(), torch.full((dy.shape[0], 1), 1.0, dtype=dy.dtype, device=dy.device))
    launch = on(weight_gradient_kernel, traced)[(triton.cdiv(n_cols, 32),)]
    results = dgamma, dbeta, dweight, dbias
    strides = weight.stride(0), dweight.stride(0)
    launch(products, offs, sums, weight, gamma, beta, *results, n_rows, n_cols, *strides, 64, 32)
    return results
