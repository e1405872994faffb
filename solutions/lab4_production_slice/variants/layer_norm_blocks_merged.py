"""EXPECT PASS from layer_norm_forward: one sweep, and blocks are merged after Chan."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def merge(count, mean, m2, count_b, mean_b, m2_b):
    """Join two sets of numbers, each by count, mean and sum of squared differences from it.

    T. Chan, G. Golub, R. LeVeque: Updating formulae and a pairwise algorithm for computing sample
    variances, 1979.
    """
    total = count + count_b
    delta = mean_b - mean
    weight_b = count_b / total
    return total, mean + delta * weight_b, m2 + m2_b + delta * delta * count * weight_b


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32, reading the row once."""
    lanes = tl.arange(0, BLOCK)
    count = 0.0
    mean = 0.0
    m2 = 0.0
    for start in range(0, N_COLS, BLOCK):
        here = tl.minimum(N_COLS - start, BLOCK).to(tl.float32)  # how many of the lanes exist
        x = load(x_row, start + lanes, N_COLS)
        mean_b = tl.sum(x, axis=0) / here
        d = tl.where(start + lanes < N_COLS, x - mean_b, 0.0)
        count, mean, m2 = merge(count, mean, m2, here, mean_b, tl.sum(d * d, axis=0))
    return mean, 1.0 / tl.sqrt(m2 / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, y_row = x_ptr + row * stride_x, y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    start = 0
    while start < N_COLS:
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        y = tl.fma(n, load(weight_ptr, cols, N_COLS), load(bias_ptr, cols, N_COLS))
        store(y_row, cols, N_COLS, y)
        start += BLOCK


def layer_norm_forward(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    *,
    eps: float = 1e-5,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    if weight.shape != (n_cols,) or bias.shape != (n_cols,):
        raise ValueError(f"{n_cols} columns, but {weight.numel()} weights and {bias.numel()} biases")
    launch = on(layer_norm_kernel, x)[(n_rows,)]
    launch(x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return layer_norm_forward(x, weight, bias, eps=eps)


if __name__ == "__main__":
    torch.manual_seed(0)
    sample = torch.randn(3, 50) + 100
    mine = layer_norm_forward(sample, torch.ones(50), torch.zeros(50))
    print((mine - torch.nn.functional.layer_norm(sample, (50,))).abs().max())
