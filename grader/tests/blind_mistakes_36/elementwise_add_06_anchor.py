# labs/lab1_elementwise_add/elementwise_add.py | corner | elementwise_add: the width of the tail's block, `1 << (tail.bit_length() - 1)`, is the largest power of two up to tail = n % 1024 instead of the smallest one from tail on; where tail is no power of two (n = 7, 127, 129, 1009, 4099, 2^20 + 3, ...) the elements behind that width stay unwritten; right where tail is 0 or a power of two; it should be 1 << (tail - 1).bit_length(), or triton.next_power_of_2(tail)
"""Add two vectors with two kernels: one for the full blocks, and one program for what is left."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """Full blocks: every lane of every program exists."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    y = tl.load(y_ptr + offs)
    tl.store(out_ptr + offs, x + y)


@triton.jit
def tail_kernel(x_ptr, y_ptr, out_ptr, begin, count, WIDTH: tl.constexpr):
    """The `count` elements from `begin` on, by one program."""
    lanes = tl.arange(0, WIDTH)
    exists = lanes < count
    x = tl.load(x_ptr + begin + lanes, mask=exists)
    y = tl.load(y_ptr + begin + lanes, mask=exists)
    tl.store(out_ptr + begin + lanes, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    full, tail = divmod(x.numel(), BLOCK)
    if full:
        elementwise_add_kernel[(full,)](x, y, out, BLOCK=BLOCK)
    if tail:
        width = 1 << (tail.bit_length() - 1)
        tail_kernel[(1,)](x, y, out, full * BLOCK, tail, WIDTH=width)
    return out
