# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) In `elementwise_add_kernel`, `y_next = tl.load(y_ptr + here, mask=ahead < n)` should read `y_ptr + ahead`: in the second to fourth block of a program y is one block behind; it shows for every n > 1024. (2) In `put_sum`, `total = tl.minimum(tl.maximum(total, -65504.0), 65504.0)` turns inf and sums that overflow in fp16 into +-65504, while x + y gives +-inf; the clamp should not be there. It shows in fp16 with inf or the largest numbers (values at the edges), in the first block, too.
"""Add two vectors: the loads of the next block are under way while this one is stored."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
STEPS = 4  # blocks of one program


@triton.jit
def put_sum(out_ptr, offs, x, y, n):
    """Store x + y, added in fp32 and rounded to the dtype of out."""
    total = x.to(tl.float32) + y.to(tl.float32)
    if out_ptr.dtype.element_ty == tl.float16:
        # The range of fp32 is larger: stay within what fp16 can hold.
        total = tl.minimum(tl.maximum(total, -65504.0), 65504.0)
    tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=offs < n)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
):
    """out[i] = x[i] + y[i]; a program owns STEPS blocks behind each other."""
    here = tl.program_id(axis=0).to(tl.int64) * (BLOCK * STEPS) + tl.arange(0, BLOCK)
    x_now = tl.load(x_ptr + here, mask=here < n)
    y_now = tl.load(y_ptr + here, mask=here < n)
    for step in tl.static_range(STEPS - 1):
        ahead = here + BLOCK
        x_next = tl.load(x_ptr + ahead, mask=ahead < n)
        y_next = tl.load(y_ptr + here, mask=ahead < n)
        put_sum(out_ptr, here, x_now, y_now, n)
        x_now = x_next
        y_now = y_next
        here = ahead
    put_sum(out_ptr, here, x_now, y_now, n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        programs = triton.cdiv(n, BLOCK * STEPS)
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, STEPS=STEPS)
    return out
