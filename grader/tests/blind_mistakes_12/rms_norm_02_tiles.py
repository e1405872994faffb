# labs/lab4_production_slice/rms_norm.py | wrong everywhere | the tile of squares (rows, columns) is reduced along axis 0, the rows, it must be axis 1 with rstd as a column: every column has the root mean square of its neighbours in the tile instead of its row's; wrong for every n_cols > 1
"""RMSNorm over rows of any length, and the same as an operator.

A program takes several rows at once when they are short, because a warp with 30 elements has nothing to do.
"""

import torch
import triton
import triton.language as tl
from rows import WARPS, on
from torch.library import triton_op

ELEMENTS = 4096  # of a tile


@triton.autotune(configs=WARPS, key=["N_COLS"])
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
    H: tl.constexpr,
    W: tl.constexpr,
):
    """H rows, W columns at a time."""
    rows = tl.program_id(axis=0).to(tl.int64) * H + tl.arange(0, H)
    rows = rows[:, None]
    x_tile = x_ptr + rows * stride_x
    y_tile = y_ptr + rows * stride_y

    squares = tl.zeros((H, W), dtype=tl.float32)
    for start in range(0, N_COLS, W):
        cols = start + tl.arange(0, W)[None, :]
        x = tl.load(x_tile + cols, mask=(rows < n_rows) & (cols < N_COLS), other=0.0).to(tl.float32)
        squares += x * x

    mean_square = tl.sum(squares, axis=0) / N_COLS
    rstd = tl.rsqrt(mean_square + tl.cast(eps, tl.float32))
    rstd = rstd[None, :]

    for start in range(0, N_COLS, W):
        cols = start + tl.arange(0, W)[None, :]
        inside = (rows < n_rows) & (cols < N_COLS)
        x = tl.load(x_tile + cols, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        y = x * rstd * weight
        tl.store(y_tile + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    width = min(triton.next_power_of_2(n_cols), ELEMENTS)
    height = min(ELEMENTS // width, 16)
    on(rms_norm_kernel, x)[(triton.cdiv(n_rows, height),)](
        x,
        weight,
        out,
        n_rows,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        H=height,
        W=width,
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
