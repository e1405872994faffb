# labs/lab4_production_slice/layer_norm.py | error | In `fetch` and `write`, `tl.arange(0, WIDTH)` is called with WIDTH = REST = N_COLS % BLOCK, and arange takes only powers of two; the rest needs a padded block and a mask. Does not compile for rows whose rest is no power of two (3 of 4 columns, 48, 127, 129 of 256, 1001, 2600, 40000 ...); rows of 1, 2, 4096, 16384, 16385 or 24576 columns are right.
"""LayerNorm over rows of any length: whole blocks first, then the rest of the row; and an operator."""

import torch
import triton
import triton.language as tl
from rows import block_of, on
from torch.library import triton_op

CONFIGS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]


@triton.jit
def fetch(ptr, first, WIDTH: tl.constexpr):
    """Return WIDTH numbers from ptr + first on, in fp32."""
    return tl.load(ptr + first + tl.arange(0, WIDTH)).to(tl.float32)


@triton.jit
def squared_differences(x, mean):
    """Return the sum of the squared differences from the mean."""
    return tl.sum((x - mean) * (x - mean), axis=0)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS. Every load lies inside of the row, so no lane needs a mask.
    """
    REST: tl.constexpr = N_COLS % BLOCK
    WHOLE: tl.constexpr = N_COLS - N_COLS % BLOCK
    total = 0.0
    for start in range(0, WHOLE, BLOCK):
        total += tl.sum(fetch(x_row, start, BLOCK), axis=0)
    if REST > 0:
        total += tl.sum(fetch(x_row, WHOLE, REST), axis=0)
    mean = total / N_COLS
    squares = 0.0
    for start in range(0, WHOLE, BLOCK):
        squares += squared_differences(fetch(x_row, start, BLOCK), mean)
    if REST > 0:
        squares += squared_differences(fetch(x_row, WHOLE, REST), mean)
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


@triton.jit
def write(x_row, weight_ptr, bias_ptr, y_row, mean, rstd, first, WIDTH: tl.constexpr):
    """Normalise, scale, shift and store WIDTH columns from `first` on."""
    n = (fetch(x_row, first, WIDTH) - mean) * rstd
    y = n * fetch(weight_ptr, first, WIDTH) + fetch(bias_ptr, first, WIDTH)
    tl.store(y_row + first + tl.arange(0, WIDTH), y.to(y_row.dtype.element_ty))


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i computes row i.

    x and y are (n_rows, N_COLS), weight and bias (N_COLS,), all of one dtype with contiguous columns;
    stride_x and stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    REST: tl.constexpr = N_COLS % BLOCK
    WHOLE: tl.constexpr = N_COLS - N_COLS % BLOCK
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, WHOLE, BLOCK):
        write(x_row, weight_ptr, bias_ptr, y_row, mean, rstd, start, BLOCK)
    if REST > 0:
        write(x_row, weight_ptr, bias_ptr, y_row, mean, rstd, WHOLE, REST)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(layer_norm_kernel, x)[(n_rows,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
