"""EXPECT PASS from layer_norm_forward: each lane after Welford, and all lanes joined at once, after Chan."""

import torch
import triton
import triton.language as tl


@triton.jit
def welford_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, n_cols, stride_x, stride_y, eps, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    count = tl.zeros((BLOCK,), dtype=tl.float32)
    means = tl.zeros((BLOCK,), dtype=tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        inside = start + lanes < n_cols
        x = tl.load(x_ptr + row * stride_x + start + lanes, mask=inside, other=0.0).to(tl.float32)
        count += tl.where(inside, 1.0, 0.0)
        d = tl.where(inside, x - means, 0.0)
        means += d / tl.maximum(count, 1.0)
        squares += d * (x - means)
    mean = tl.sum(count * means, axis=0) / n_cols
    squares += count * (means - mean) * (means - mean)
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)
    for start in range(0, n_cols, BLOCK):
        inside = start + lanes < n_cols
        x = tl.load(x_ptr + row * stride_x + start + lanes, mask=inside).to(tl.float32)
        weight = tl.load(weight_ptr + start + lanes, mask=inside).to(tl.float32)
        bias = tl.load(bias_ptr + start + lanes, mask=inside).to(tl.float32)
        y = (x - mean) * rstd * weight + bias
        tl.store(y_ptr + row * stride_y + start + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)


def layer_norm_forward(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, eps: float = 1e-5, out=None
) -> torch.Tensor:
    y = out if out is not None else torch.empty_like(x)
    block = min(1024, triton.next_power_of_2(x.shape[1]))
    welford_kernel[(x.shape[0],)](
        x, weight, bias, y, x.shape[1], x.stride(0), y.stride(0), eps, BLOCK=block, num_warps=4
    )
    return y
