# labs/lab4_production_slice/layer_norm.py | error | copies the result with Tensor.copy_ in host code, which the language page does not list, so the file is refused; the kernel must store through out.stride(0) instead; shows in all cases
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS.
    """
    # First sweep: the mean. Lanes past the end of the row are loaded as 0 and add nothing.
    row_sum = tl.zeros((BLOCK,), dtype=tl.float32)
    for first_col in range(0, N_COLS, BLOCK):
        cols = first_col + tl.arange(0, BLOCK)
        row_sum += load(x_row, cols, N_COLS)
    mean = tl.sum(row_sum, axis=0) / N_COLS

    # Second sweep: the variance. Here a lane past the end has to be set to 0 after the subtraction.
    square_sum = tl.zeros((BLOCK,), dtype=tl.float32)
    for first_col in range(0, N_COLS, BLOCK):
        cols = first_col + tl.arange(0, BLOCK)
        deviation = load(x_row, cols, N_COLS) - mean
        deviation = tl.where(cols < N_COLS, deviation, 0.0)
        square_sum += deviation * deviation
    variance = tl.sum(square_sum, axis=0) / N_COLS

    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i computes row i. y is contiguous."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * N_COLS
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)

    for first_col in range(0, N_COLS, BLOCK):
        cols = first_col + tl.arange(0, BLOCK)
        normalised = (load(x_row, cols, N_COLS) - mean) * rstd
        scaled = normalised * load(weight_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, scaled + load(bias_ptr, cols, N_COLS))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) with contiguous columns; weight and bias are (n_cols,). The result goes to `out`.
    """
    assert x.dim() == 2, f"x has {x.dim()} dimensions"
    assert x.stride(1) == 1 or x.shape[1] == 1, "the columns of x are not contiguous"
    n_rows, n_cols = x.shape

    # The kernel stores rows that touch each other.
    result = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    on(layer_norm_kernel, x)[(n_rows,)](
        x, weight, bias, result, x.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    if out is None:
        return result
    out.copy_(result)
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
