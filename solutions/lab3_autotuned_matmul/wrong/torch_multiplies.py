"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL from matmul_bias_relu: S42 torch.mm multiplies"""

import torch
import triton
import triton.language as tl


@triton.jit
def bias_relu_kernel(sums_ptr, bias_ptr, c_ptr, N, stride_sm, stride_cm, stride_cn, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = cols < N
    sums = tl.load(sums_ptr + row * stride_sm + cols, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    c = tl.maximum(sums + bias, 0.0).to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + row * stride_cm + cols * stride_cn, c, mask=mask)


def matmul_bias_relu(a, b, bias, *, out=None):
    M, N = a.shape[0], b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    # keep the sums in fp32 until the bias is added
    sums = torch.mm(a.float(), b.float())
    grid = (M, triton.cdiv(N, 512))
    bias_relu_kernel[grid](sums, bias, out, N, sums.stride(0), *out.stride(), BLOCK_N=512)
    return out
