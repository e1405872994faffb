# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) shares(): each = blocks // programs rounds down, so with more blocks than programs, and their number no multiple of it, the blocks at the end have no program and stay unwritten; it should be triton.cdiv(blocks, programs). (2) elementwise_add_kernel: the sum starts from tl.zeros, so -0.0 + -0.0 gives 0.0; it should be the sum of the two loads alone.
"""out = x + y. The vector is cut into as many equal shares as the card runs programs at a time."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PER_SM = 8


@triton.jit
def plus(total, ptr, i, n):
    """total and the block of ptr at i."""
    return total + tl.load(ptr + i, mask=i < n, other=0.0)


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, each, BLOCK: tl.constexpr):
    """A program owns `each` blocks that lie side by side."""
    first = tl.program_id(axis=0).to(tl.int64) * each
    for b in range(0, each):
        i = (first + b) * BLOCK + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), dtype=out_ptr.dtype.element_ty)
        total = plus(total, x_ptr, i, n)
        total = plus(total, y_ptr, i, n)
        tl.store(out_ptr + i, total, mask=i < n)


def shares(n, device):
    """How many programs, and how many blocks for each of them."""
    blocks = triton.cdiv(n, BLOCK)
    if device.type == "cuda":
        most = PER_SM * torch.cuda.get_device_properties(device).multi_processor_count
    else:
        most = 4
    programs = min(blocks, most)
    each = blocks // programs
    return programs, each


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; n may be 0."""
    out = torch.empty_like(x) if out is None else out
    n = x.shape[0]
    if n:
        programs, each = shares(n, x.device)
        elementwise_add_kernel[(programs,)](x, y, out, n, each, BLOCK=BLOCK)
    return out
