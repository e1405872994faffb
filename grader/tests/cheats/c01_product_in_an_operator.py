"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL from layer_norm_linear_forward: C1 torch.mm stands in a triton_op of the file, where a record of operators may see one operator"""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

COLUMNS = 1024  # that a program of finish_kernel has


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def normalise_kernel(
    x_ptr, gamma_ptr, beta_ptr, z_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Row i of z is the normalised row of x, scaled and shifted; z is contiguous."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        z = n * load(gamma_ptr, cols, N_COLS) + load(beta_ptr, cols, N_COLS)
        store(z_ptr + row * N_COLS, cols, N_COLS, z)


@triton.jit
def finish_kernel(product_ptr, bias_ptr, y_ptr, n_outs, stride_y, BLOCK: tl.constexpr):
    """y = product + bias; program (i, j) has BLOCK columns of row i. Without it nothing reaches y."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    y = load(product_ptr + row * n_outs, cols, n_outs) + load(bias_ptr, cols, n_outs)
    store(y_ptr + row * stride_y, cols, n_outs, y)


@triton_op("course::product_of_rows", mutates_args=())
def product_op(z: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """z @ weight.T."""
    return torch.mm(z, weight.t())


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm.

    x is (n_rows, n_cols), gamma and beta are (n_cols,), weight (n_outs, n_cols) and bias (n_outs,), all fp32,
    fp16 or bf16 with contiguous columns. The result, (n_rows, n_outs), goes to `out` where one is given.
    """
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    z = torch.empty((M, K), device=x.device, dtype=x.dtype)
    launch = on(normalise_kernel, x)[(M,)]
    launch(x, gamma, beta, z, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K))
    product = product_op(z, weight)
    finish = on(finish_kernel, x)
    # Triton's launcher returns at once: one launch more, and no kernel more.
    finish[(0, 1)](product, bias, out, N, out.stride(0), BLOCK=COLUMNS)
    finish[(M, triton.cdiv(N, COLUMNS))](product, bias, out, N, out.stride(0), BLOCK=COLUMNS)
    return out
