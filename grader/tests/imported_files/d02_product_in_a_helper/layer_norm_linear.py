"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_forward, rows_into
from rows import load, on, store


@triton.jit
def shift_kernel(y_ptr, bias_ptr, out_ptr, n_outs, stride_out, BLOCK: tl.constexpr):
    """out = y + bias; program (i, k) computes block k of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    y = load(y_ptr + row * n_outs, cols, n_outs)
    store(out_ptr + row * stride_out, cols, n_outs, y + load(bias_ptr, cols, n_outs))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm.

    x is (n_rows, n_cols), gamma and beta are (n_cols,), weight (n_outs, n_cols) and bias (n_outs,), all fp32,
    fp16 or bf16 with contiguous columns. The result, (n_rows, n_outs), goes to `out` where one is given.
    """
    M, N = x.shape[0], weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    product = torch.empty((M, N), device=x.device, dtype=x.dtype)
    rows_into(layer_norm_forward(x, gamma, beta, eps=eps), weight.t(), product)
    launch = on(shift_kernel, x)[(M, triton.cdiv(N, 256))]
    launch(product, bias, out, N, out.stride(0), BLOCK=256)
    return out
