# lab1/elementwise_add.py | everywhere | kernel: y is loaded at y_ptr + block_start (a single address, the first element of the block) instead of y_ptr + offsets, so the same y is added to all elements of a block | "The same offsets serve x, y and out"; every n > 1 (the first element of each block is right)
import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
):
    pid = tl.program_id(axis=0).to(tl.int64)
    block_start = pid * BLOCK
    offsets = block_start + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + block_start)
    output = x + y
    tl.store(out_ptr + offsets, output, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_elements = x.numel()
    if n_elements == 0:
        return out
    grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK"]),)
    elementwise_add_kernel[grid](x, y, out, n_elements, BLOCK=BLOCK)
    return out
