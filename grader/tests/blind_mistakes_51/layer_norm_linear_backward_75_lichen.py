# labs/lab4_production_slice/layer_norm_linear_backward.py | two mistakes | (1) `rebuild_kernel`: `tl.fma(beta, n, gamma)` is beta * n + gamma; it should be `tl.fma(n, gamma, beta)`, n * gamma + beta. dweight is wrong in all cases. (2) `LayerNormLinear.backward`: `norm_gradients(torch.mm(dy, weight), x, gamma)` leaves eps at its default 1e-5; it should hand on `ctx.eps`. dx and dgamma are wrong for another eps only (eps = 1, eps = 0 with narrow rows).
"""LayerNorm and the Linear layer behind it as a differentiable operator, with a kernel for the input of Linear."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op


@triton_op("course::layer_norm_linear", mutates_args=())
def forward_op(
    x: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    """layer_norm_linear_forward as an operator that torch.compile can look into."""
    return layer_norm_linear_forward(x, gamma, beta, weight, bias, eps=eps)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rebuild_kernel(
    x_ptr, gamma_ptr, beta_ptr, z_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Row i of z, what Linear got from the norm in the forward pass; z is contiguous, and program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        gamma = load(gamma_ptr, cols, N_COLS)
        beta = load(beta_ptr, cols, N_COLS)
        store(z_ptr + row * N_COLS, cols, N_COLS, tl.fma(beta, n, gamma))


@triton_op("course::rebuild_normalised", mutates_args=())
def rebuild_op(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, eps: float) -> torch.Tensor:
    """z of the forward pass, (n_rows, n_cols), once more."""
    n_rows, n_cols = x.shape
    z = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    on(rebuild_kernel, x)[(n_rows,)](
        x, gamma, beta, z, x.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return z


@triton_op("course::column_sums", mutates_args=())
def column_sums_op(terms: torch.Tensor) -> torch.Tensor:
    """column_sums as an operator that torch.compile can look into."""
    out = torch.empty((terms.shape[1],), device=terms.device, dtype=terms.dtype)
    column_sums(terms, out)
    return out


def norm_gradients(dz, x, gamma, eps: float = 1e-5):
    """dx, dgamma and dbeta of the norm, from the gradient of its result."""
    return backward_op(dz, x, gamma, eps)


class LayerNormLinear(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        """Return y for x."""
        ctx.save_for_backward(x, gamma, beta, weight)
        ctx.eps = eps
        return forward_op(x, gamma, beta, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dgamma, dbeta, dweight and dbias for dy, and None for eps."""
        x, gamma, beta, weight = ctx.saved_tensors
        dy = dy.contiguous()
        z = rebuild_op(x, gamma, beta, ctx.eps)
        dweight = torch.mm(dy.t(), z)
        dbias = column_sums_op(dy)
        dx, dgamma, dbeta = norm_gradients(torch.mm(dy, weight), x, gamma)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
