# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `_launch`, `add_kernel[(programs,)](x, y, out, n, ...)`: the kernel's parameters are `(out_ptr, x_ptr, y_ptr, n)`, so it must be `(out, x, y, n, ...)`. At every size but 0 the kernel stores y + out into x: `out` stays unwritten and x is changed.
"""Add two vectors: a program adds several blocks, unrolled at compile time."""

import torch
import triton
import triton.language as tl

CHUNK = 1024  # lanes that work side by side
CHUNKS = 2  # one after the other in a program


@triton.jit
def add_kernel(
    out_ptr,  # (n,) like x
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    n,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Program pid owns CHUNKS blocks of CHUNK elements, one behind the other."""
    base = tl.program_id(axis=0).to(tl.int64) * (CHUNK * CHUNKS)
    lane = tl.arange(0, CHUNK)
    for k in tl.static_range(CHUNKS):
        where = base + k * CHUNK + lane
        live = where < n
        a = tl.load(x_ptr + where, mask=live)
        b = tl.load(y_ptr + where, mask=live)
        tl.store(out_ptr + where, a + b, mask=live)


def _launch(x, y, out):
    """One launch over all elements; none where there are none."""
    n = x.numel()
    if n == 0:
        return
    programs = triton.cdiv(n, CHUNK * CHUNKS)
    add_kernel[(programs,)](x, y, out, n, CHUNK=CHUNK, CHUNKS=CHUNKS, num_warps=4)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    result = torch.empty_like(x) if out is None else out
    _launch(x, y, result)
    return result
