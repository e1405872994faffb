# labs/lab4_production_slice/rms_norm.py | contract | rms_norm_forward allocates `torch.empty_like(x, dtype=torch.float32)` where no out is given, so for fp16 and bf16 the result is fp32; it must have the dtype of x. The numbers are right.
import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PROGRAMS = 4096  # at most; each goes on with the row PROGRAMS further down


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, n_rows, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight by persistent programs."""
    for number in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        row = tl.cast(number, tl.int64)
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        squares = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
            squares += x * x
        rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            store(y_row, cols, N_COLS, load(x_row, cols, N_COLS) * rstd * load(weight_ptr, cols, N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    if out is None:
        out = torch.empty_like(x, dtype=torch.float32)
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(min(n_rows, PROGRAMS),)](
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator."""
    return rms_norm_forward(x, weight, eps=eps)
