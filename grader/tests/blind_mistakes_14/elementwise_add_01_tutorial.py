# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | The launch passes the tensors as `(out, x, y, ...)` while the kernel takes `(x_ptr, y_ptr, out_ptr, ...)`, so it reads out and x and stores into y; the launch should be `elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)`.
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    # There are multiple 'programs' processing different data. We identify which program
    # we are here:
    pid = tl.program_id(axis=0).to(tl.int64)  # We use a 1D launch grid so axis is 0.
    # This program will process inputs that are offset from the initial data.
    # For instance, if you had a vector of length 256 and block size of 64, the programs
    # would each access the elements [0:64, 64:128, 128:192, 192:256].
    block_start = pid * BLOCK
    offsets = block_start + tl.arange(0, BLOCK)
    # Create a mask to guard memory operations against out-of-bounds accesses.
    mask = offsets < n
    # Load x and y from DRAM, masking out any extra elements in case the input is not a
    # multiple of the block size.
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    output = x + y
    # Write x + y back to DRAM.
    tl.store(out_ptr + offsets, output, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    # We need to preallocate the output.
    if out is None:
        out = torch.empty_like(x)
    n = out.numel()
    if n > 0:
        # The SPMD launch grid denotes the number of kernel instances that run in parallel.
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
        elementwise_add_kernel[grid](out, x, y, n, BLOCK=BLOCK)
    return out
