# labs/lab4_production_slice/layer_norm.py | corner | fp16 and bf16 rows far from 0 whose length does not fill the blocks: mean_and_rstd loads the mean as `other` past the end, and tl.load rounds it to the dtype of x, so lanes past the end add (rounded mean - mean)^2 to the squares; the difference should be set to 0 there by tl.where, after the subtraction in fp32.
import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    mean = 0.0
    for j in range(0, N_COLS, BLOCK):
        mean += tl.sum(load(x_row, j + lanes, N_COLS)) / N_COLS
    var = 0.0
    for j in range(0, N_COLS, BLOCK):
        d = load(x_row, j + lanes, N_COLS, mean) - mean
        var += tl.sum(d * d) / N_COLS
    return mean, tl.rsqrt(var + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, sx, sy, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + i * sx
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for j in range(0, N_COLS, BLOCK):
        c = j + tl.arange(0, BLOCK)
        n = (load(x_row, c, N_COLS) - mean) * rstd
        store(y_ptr + i * sy, c, N_COLS, n * load(w_ptr, c, N_COLS) + load(b_ptr, c, N_COLS))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    k = x.shape[1]
    launch = on(layer_norm_kernel, x)[(x.shape[0],)]
    launch(x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=k, BLOCK=block_of(k))
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return layer_norm_forward(x, weight, bias, eps=eps)
