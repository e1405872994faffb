# labs/lab4_production_slice/layer_norm_linear_backward.py | corner | In `normalise_kernel`, gamma and beta are loaded once, before the loops, at `lanes` (columns 0 to BLOCK - 1), and used for all blocks of a row: `n * gamma + beta`. They should be loaded at `cols` in the loop over blocks. z and with it dweight are wrong from column 8192 on, only for rows of more than 8192 columns (8201, 20011).
"""LayerNorm and the Linear layer behind it as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import column_sums, load, on, store
from torch.library import triton_op

STRIP = 8192  # columns that a program has in registers at a time
PROGRAMS = 1056  # at most, each with every so-many-th row
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]


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


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def normalise_kernel(
    x_ptr, gamma_ptr, beta_ptr, z_ptr, n_rows, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """z = n * gamma + beta, what the forward pass never stored; a program walks over several rows.

    gamma and beta serve all rows of a program, so they are loaded once. z is contiguous, of the dtype of x.
    """
    first = tl.program_id(axis=0).to(tl.int64)
    step = tl.num_programs(axis=0)
    lanes = tl.arange(0, BLOCK)
    gamma = load(gamma_ptr, lanes, N_COLS)
    beta = load(beta_ptr, lanes, N_COLS)
    for turn in range(0, tl.cdiv(n_rows - first, step)):
        row = first + turn * step
        x_row = x_ptr + row * stride_x
        z_row = z_ptr + row * N_COLS
        mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            n = (load(x_row, cols, N_COLS) - mean) * rstd
            store(z_row, cols, N_COLS, n * gamma + beta)


@triton_op("course::layer_norm_linear_z", mutates_args=())
def z_op(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, eps: float) -> torch.Tensor:
    """What Linear got from the norm."""
    n_rows, n_cols = x.shape
    z = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    block = min(triton.next_power_of_2(n_cols), STRIP)
    on(normalise_kernel, x)[(min(n_rows, PROGRAMS),)](
        x, gamma, beta, z, n_rows, x.stride(0), eps, N_COLS=n_cols, BLOCK=block
    )
    return z


@triton_op("course::column_sums", mutates_args=())
def column_sums_op(terms: torch.Tensor) -> torch.Tensor:
    """column_sums as an operator that torch.compile can look into."""
    out = torch.empty((terms.shape[1],), device=terms.device, dtype=terms.dtype)
    column_sums(terms, out)
    return out


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
        of_x, of_gamma, of_beta, of_weight, of_bias, _ = ctx.needs_input_grad
        dx, dgamma, dbeta, dweight, dbias = None, None, None, None, None
        if of_x or of_gamma or of_beta:
            dz = torch.mm(dy, weight)
            dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)
        if of_weight:
            dweight = torch.mm(dy.t(), z_op(x, gamma, beta, ctx.eps))
        if of_bias:
            dbias = column_sums_op(dy)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
