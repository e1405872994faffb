# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) In pairs_kernel `near = tl.program_id(axis=0).to(tl.int64) * BLOCK + ...` should be `* (2 * BLOCK)`: from two pairs on (n >= 4096) programs overlap and about half of the whole pairs is unwritten (for itself: n = 4096, 8192, 65537). (2) In elementwise_add `width = 1 << (rest.bit_length() - 1)` is the power of two below rest; it should be `triton.next_power_of_2(rest)`: the end is unwritten where rest = n modulo 2048 is no power of two (for itself: n = 7, 48, 127, 129, 1009, 1536).
"""Add two vectors in two launches: pairs of whole blocks without masks, then what is left."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def pairs_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i] for two neighbouring blocks, all of whose elements exist.

    The four loads do not depend on each other, so all of them are in flight at a time.
    """
    near = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    far = near + BLOCK
    x_near = tl.load(x_ptr + near)
    y_near = tl.load(y_ptr + near)
    x_far = tl.load(x_ptr + far)
    y_far = tl.load(y_ptr + far)
    tl.store(out_ptr + near, x_near + y_near)
    tl.store(out_ptr + far, x_far + y_far)


@triton.jit
def rest_kernel(x_ptr, y_ptr, out_ptr, start, n, WIDTH: tl.constexpr):
    """out[i] = x[i] + y[i] for the elements from start to the end; there are fewer than two blocks of them."""
    offs = start + tl.arange(0, WIDTH)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    pairs, rest = divmod(n, 2 * BLOCK)
    if pairs > 0:
        pairs_kernel[(pairs,)](x, y, out, BLOCK=BLOCK)
    if rest > 0:
        # One program, whose width is a power of two.
        width = 1 << (rest.bit_length() - 1)
        rest_kernel[(1,)](x, y, out, n - rest, n, WIDTH=width)
    return out
