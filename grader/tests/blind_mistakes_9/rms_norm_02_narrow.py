# labs/lab4_production_slice/rms_norm.py | corner | the squares are taken in the dtype of x (`(x * x).to(tl.float32)` in `sum_of_squares`) and only their sum is fp32: it must be x.to(tl.float32) before the product. In fp16 values of 256 and more square to inf, so rstd and the whole row become 0, and values below about 0.0002 square to 0 or lose their digits; fp32 is right, bf16 is right within its rounding
"""RMSNorm by tiles of several rows."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op


@triton.jit
def sum_of_squares(x_ptr, rows, alive, stride, N: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr):
    lanes = tl.arange(0, WIDE)[None, :]
    acc = tl.zeros((HIGH, WIDE), dtype=tl.float32)
    for k in range(0, N, WIDE):
        x = tl.load(x_ptr + rows * stride + k + lanes, mask=alive & (k + lanes < N), other=0.0)
        acc += (x * x).to(tl.float32)
    return tl.sum(acc, axis=1)[:, None]


@triton.jit
def rms_tiles(
    x_ptr, w_ptr, y_ptr, n_rows, stride_x, stride_y, eps,
    N: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * HIGH + tl.arange(0, HIGH)[:, None]
    alive = rows < n_rows
    lanes = tl.arange(0, WIDE)[None, :]
    squares = sum_of_squares(x_ptr, rows, alive, stride_x, N, HIGH, WIDE)
    # a row that does not exist has no squares; with eps = 0 its root would be infinite
    rstd = tl.rsqrt(tl.where(alive, squares / N + tl.cast(eps, tl.float32), 1.0))
    for k in range(0, N, WIDE):
        cols = k + lanes
        mask = alive & (cols < N)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        tl.store(y_ptr + rows * stride_y + cols, (x * rstd * w).to(y_ptr.dtype.element_ty), mask=mask)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    wide = min(triton.next_power_of_2(n_cols), 8192)
    high = min(8, 8192 // wide)
    on(rms_tiles, x)[(triton.cdiv(n_rows, high),)](
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N=n_cols, HIGH=high, WIDE=wide, num_warps=8
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return rms_norm_forward(x, weight, eps=eps)
