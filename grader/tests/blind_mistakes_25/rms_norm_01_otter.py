# labs/lab4_production_slice/rms_norm.py | corner | rms_norm_forward, `pitch_x, pitch_y = (n_cols, n_cols) if x.is_contiguous() ...`: where x is contiguous, n_cols is also taken as the row stride of out, so a padded `out` for a contiguous x (more than one row) is written in the wrong places, between its rows too. The row stride of out should be `out.stride(0)` always.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import block_of, load, on, store
from torch.library import triton_op

CONFIGS = [
    triton.Config({"PER": 1}, num_warps=4),
    triton.Config({"PER": 1}, num_warps=16),
    triton.Config({"PER": 2}, num_warps=8),
    triton.Config({"PER": 4}, num_warps=4),
]


@triton.jit
def one_row(x_row, weight_ptr, y_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Normalise and scale the row at x_row, and store it at y_row."""
    lanes = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
        lanes += x * x
    squares = tl.sum(lanes, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        store(y_row, cols, N_COLS, x * rstd * load(weight_ptr, cols, N_COLS))


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
    n_rows,
    stride_x,
    stride_y,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
    PER: tl.constexpr,
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes PER rows from row i * PER on.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns. The rows of a
    program follow one another, so the weight is in the cache from the second one on.
    """
    first = tl.program_id(axis=0).to(tl.int64) * PER
    for i in range(0, PER):
        row = first + i
        if row < n_rows:
            one_row(x_ptr + row * stride_x, weight_ptr, y_ptr + row * stride_y, eps, N_COLS, BLOCK)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    # From one row to the next: the length of a row where rows touch, else what the strides say.
    pitch_x, pitch_y = (n_cols, n_cols) if x.is_contiguous() else (x.stride(0), out.stride(0))
    on(rms_norm_kernel, x)[lambda meta: (triton.cdiv(n_rows, meta["PER"]),)](
        x, weight, out, n_rows, pitch_x, pitch_y, eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
