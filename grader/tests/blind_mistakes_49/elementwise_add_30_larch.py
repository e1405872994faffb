# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `table`, `lane[:, None] * LANES + item[None, :]` uses the wrong stride: it should be `lane[:, None] * EACH + item[None, :]`. A program touches EACH elements out of every 256 instead of LANES * EACH neighbours, so most elements stay unwritten; it shows for every n > 4 in fp32 and n > 8 in fp16 and bf16.
"""Add two vectors: a program is a table with one line per thread, and a line is one 16-byte access."""

import torch
import triton
import triton.language as tl

LANES = 256  # lines of the table
ACCESS_BYTES = 16  # what one instruction moves at most


@triton.jit
def table(first, LANES: tl.constexpr, EACH: tl.constexpr):
    """Offsets of LANES lines with EACH neighbours, from `first` on."""
    lane = tl.arange(0, LANES)
    item = tl.arange(0, EACH)
    return first + (lane[:, None] * LANES + item[None, :])


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    LANES: tl.constexpr,
    EACH: tl.constexpr,
):
    """out[i] = x[i] + y[i]; a program owns LANES * EACH elements in a row."""
    # int64, since a vector may have more than 2^31 elements
    first = tl.program_id(axis=0).to(tl.int64) * (LANES * EACH)
    offs = table(first, LANES, EACH)
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
    each = ACCESS_BYTES // x.element_size()  # 4 in fp32, 8 in fp16 and bf16
    if n > 0:
        programs = triton.cdiv(n, LANES * each)
        elementwise_add_kernel[(programs,)](x, y, out, n, LANES=LANES, EACH=each, num_warps=8)
    return out
