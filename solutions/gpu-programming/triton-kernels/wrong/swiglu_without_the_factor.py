"""EXPECT WRONG/MISMATCH from swiglu, hint 2: the sigmoid of gate, and not gate times it"""

import torch
import triton
import triton.language as tl


@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr):
    blocks = tl.cdiv(n_cols, BLOCK)
    row = (tl.program_id(axis=0) // blocks).to(tl.int64)
    cols = tl.program_id(axis=0) % blocks * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=cols < n_cols).to(tl.float32)
    up = tl.load(up_ptr + row * stride_up + cols, mask=cols < n_cols).to(tl.float32)
    out = up / (1.0 + tl.exp(-gate))
    tl.store(out_ptr + row * stride_out + cols, out.to(out_ptr.dtype.element_ty), mask=cols < n_cols)


def swiglu(gate, up, *, out=None):
    out = torch.empty_like(gate) if out is None else out
    rows, cols = gate.shape
    grid = (rows * triton.cdiv(cols, 1024),)
    swiglu_kernel[grid](gate, up, out, cols, gate.stride(0), up.stride(0), out.stride(0), BLOCK=1024)
    return out
