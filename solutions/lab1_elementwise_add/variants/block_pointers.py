"""EXPECT PASS from elementwise_add: block pointers with a boundary check in place of masks."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_blocks(a, b, c, length, WIDTH: tl.constexpr):
    origin = tl.program_id(0) * WIDTH
    a_block = tl.make_block_ptr(
        base=a, shape=(length,), strides=(1,), offsets=(origin,), block_shape=(WIDTH,), order=(0,)
    )
    b_block = tl.make_block_ptr(
        base=b, shape=(length,), strides=(1,), offsets=(origin,), block_shape=(WIDTH,), order=(0,)
    )
    c_block = tl.make_block_ptr(
        base=c, shape=(length,), strides=(1,), offsets=(origin,), block_shape=(WIDTH,), order=(0,)
    )
    # The check replaces the mask; what lies past the end is read as zero and never stored.
    total = tl.load(a_block, boundary_check=(0,), padding_option="zero") + tl.load(
        b_block, boundary_check=(0,), padding_option="zero"
    )
    tl.store(c_block, total, boundary_check=(0,))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    result = out
    if result is None:
        result = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    length = x.shape[0]
    if length > 0:
        add_blocks[(triton.cdiv(length, 1024),)](x, y, result, length, WIDTH=1024)
    return result
