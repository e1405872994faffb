# labs/lab4_production_slice/layer_norm_linear.py | error | `torch.mm` computes the product in `layer_norm_linear_forward`: it is permitted in layer_norm_linear_backward.py alone, here the product must be a kernel's (tl.dot), so the file is refused (POLICY). The numbers would be right
"""LayerNorm, the product of the library, and a kernel for the bias."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def norm_kernel(
    x_ptr, gamma_ptr, beta_ptr, z_ptr, stride_x, stride_z, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for k in range(0, N_COLS, BLOCK):
        cols = k + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        z = n * load(gamma_ptr, cols, N_COLS) + load(beta_ptr, cols, N_COLS)
        store(z_ptr + row * stride_z, cols, N_COLS, z)


@triton.jit
def add_bias_kernel(
    product_ptr, bias_ptr, y_ptr, n_rows, n_outs, stride_p, stride_y, TALL: tl.constexpr, WIDE: tl.constexpr
):
    rows = (tl.program_id(0) * TALL + tl.arange(0, TALL)).to(tl.int64)[:, None]
    cols = (tl.program_id(1) * WIDE + tl.arange(0, WIDE))[None, :]
    inside = (rows < n_rows) & (cols < n_outs)
    product = tl.load(product_ptr + rows * stride_p + cols, mask=inside, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + cols, mask=cols < n_outs, other=0.0).to(tl.float32)
    tl.store(y_ptr + rows * stride_y + cols, (product + bias).to(y_ptr.dtype.element_ty), mask=inside)


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    n_rows, n_cols = x.shape
    n_outs = weight.shape[0]
    if out is None:
        out = torch.empty((n_rows, n_outs), device=x.device, dtype=x.dtype)
    z = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    on(norm_kernel, x)[(n_rows,)](
        x, gamma, beta, z, x.stride(0), z.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    product = torch.mm(z, weight.t())
    on(add_bias_kernel, x)[(triton.cdiv(n_rows, 16), triton.cdiv(n_outs, 128))](
        product, bias, out, n_rows, n_outs, product.stride(0), out.stride(0), TALL=16, WIDE=128
    )
    return out
