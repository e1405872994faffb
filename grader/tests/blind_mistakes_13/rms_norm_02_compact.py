# labs/lab4_production_slice/rms_norm.py | corner | In rms_norm_kernel eps stands outside of the root, `1.0 / (tl.sqrt(tl.sum(acc, axis=0) / N_COLS) + tl.cast(eps, tl.float32))`; it should be `1.0 / tl.sqrt(tl.sum(acc, axis=0) / N_COLS + eps)`, which differs where eps is not small beside the values.
import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(X, W, Y, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    X += row * stride_x
    Y += row * stride_y
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for off in range(0, N_COLS, BLOCK):
        x = load(X, off + tl.arange(0, BLOCK), N_COLS)
        acc += x * x
    r = 1.0 / (tl.sqrt(tl.sum(acc, axis=0) / N_COLS) + tl.cast(eps, tl.float32))
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        store(Y, cols, N_COLS, load(X, cols, N_COLS) * r * load(W, cols, N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    M, N = x.shape
    on(rms_norm_kernel, x)[(M,)](
        x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=N, BLOCK=block_of(N)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return rms_norm_forward(x, weight, eps=eps)
