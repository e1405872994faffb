# labs/lab1_elementwise_add/elementwise_add.py | corner | In `needs_no_mask`, `return n % 16 == 0` should be `return n % BLOCK == 0`: a multiple of 16 need not be made of whole blocks of 1024. The loads and the store then run without a mask, which is out of bounds (reads and writes behind the tensors) for n that is a multiple of 16 but not of 1024, such as 48, 128, 256, 512, 1536.
"""Add two vectors: no masks at all where every block is whole."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def read(ptr, offs, n, WHOLE: tl.constexpr):
    if WHOLE:
        return tl.load(ptr + offs)
    else:
        return tl.load(ptr + offs, mask=offs < n)


@triton.jit
def write(ptr, offs, value, n, WHOLE: tl.constexpr):
    if WHOLE:
        tl.store(ptr + offs, value)
    else:
        tl.store(ptr + offs, value, mask=offs < n)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    WHOLE: tl.constexpr,  # true where no lane lies past the end
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    x = read(x_ptr, offs, n, WHOLE)
    y = read(y_ptr, offs, n, WHOLE)
    write(out_ptr, offs, x + y, n, WHOLE)


def needs_no_mask(n: int) -> bool:
    """A group of lanes that one thread moves is then inside as a whole: the mask would only cost time."""
    return n % 16 == 0


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, BLOCK),)
        elementwise_add_kernel[grid](x, y, out, n, WHOLE=needs_no_mask(n), BLOCK=BLOCK)
    return out
