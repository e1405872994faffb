# labs/lab4_production_slice/rms_norm.py | error | `rms_norm_kernel` leaves its loop over rows by `while True: ... break`: Triton compiles no break in a kernel (unsupported AST node type: Break), it must be `while row < n_rows`. The interpreter runs it and gives right numbers; every compilation for a GPU fails
"""RMSNorm with a fixed number of programs that take one row after the other."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PROGRAMS = 1056


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, n_rows, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    while True:
        if row >= n_rows:
            break
        x_row = x_ptr + row * stride_x
        squares = 0.0
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
            squares += tl.sum(x * x, axis=0)
        rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            y = load(x_row, cols, N_COLS) * rstd * load(weight_ptr, cols, N_COLS)
            store(y_ptr + row * stride_y, cols, N_COLS, y)
        row += tl.num_programs(axis=0)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(min(PROGRAMS, n_rows),)](
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return rms_norm_forward(x, weight, eps=eps)
