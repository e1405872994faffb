# labs/lab4_production_slice/rms_norm.py | corner | In `rms_norm_forward`, `out, pitch_y = torch.empty_like(x), pitch_x` takes the row stride of x for the new tensor, but `empty_like` of a tensor with gaps between its rows is contiguous; it should be `out.stride(0)`. Shows only in a call without `out` (also by rms_norm_op) whose x has gaps between rows: rows land in wrong places and the stores run past the end of the new tensor.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PROGRAMS = 2112  # sixteen for each SM of an H200; each takes row after row
WIDTH = 8192  # a row up to this length stays in registers, and so does the weight


@triton.jit
def inverse_rms(squares, eps, N_COLS: tl.constexpr):
    """Return 1 / sqrt(mean(x * x) + eps) for the sum of the squares of a row."""
    return tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, n_rows, pitch_x, pitch_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i has rows i, i + programs, i + 2 * programs, ...

    pitch_x and pitch_y are the elements from one row to the next. Short rows are one block: the weight is then
    loaded once for all rows of the program. Long rows are taken in two sweeps.
    """
    first = tl.program_id(axis=0)
    step = tl.num_programs(axis=0)
    lanes = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        weight = load(weight_ptr, lanes, N_COLS)
        for turn in range(first, n_rows, step):
            row = tl.cast(turn, tl.int64)
            x = load(x_ptr + row * pitch_x, lanes, N_COLS)
            scale = inverse_rms(tl.sum(x * x, axis=0), eps, N_COLS)
            store(y_ptr + row * pitch_y, lanes, N_COLS, x * scale * weight)
    else:
        for turn in range(first, n_rows, step):
            row = tl.cast(turn, tl.int64)
            x_row = x_ptr + row * pitch_x
            y_row = y_ptr + row * pitch_y
            # Squares of a lane are added up for themselves, and the lanes once at the end.
            of_lanes = tl.zeros((BLOCK,), dtype=tl.float32)
            for start in range(0, N_COLS, BLOCK):
                x = load(x_row, start + lanes, N_COLS)
                of_lanes += x * x
            scale = inverse_rms(tl.sum(of_lanes, axis=0), eps, N_COLS)
            for start in range(0, N_COLS, BLOCK):
                cols = start + lanes
                weight = load(weight_ptr, cols, N_COLS)
                store(y_row, cols, N_COLS, load(x_row, cols, N_COLS) * scale * weight)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    n_rows, n_cols = x.shape
    pitch_x = x.stride(0)
    if out is None:
        out, pitch_y = torch.empty_like(x), pitch_x
    else:
        pitch_y = out.stride(0)
    grid = (min(n_rows, PROGRAMS),)
    on(rms_norm_kernel, x)[grid](
        x, weight, out, n_rows, pitch_x, pitch_y, eps, N_COLS=n_cols, BLOCK=min(block_of(n_cols), WIDTH)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
