# labs/lab1_elementwise_add/elementwise_add.py | error | In `chunked_add_kernel`, `owned = start <= offs < stop` is a chained comparison, which Triton does not compile (simultaneous multiple comparison is not supported; in the interpreter the truth value of a block is ambiguous). It should be `(start <= offs) & (offs < stop)`. Fails for every n >= 1.
"""Add two vectors: each program owns a chunk and walks through it block by block."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
CHUNK = 8 * BLOCK


@triton.jit
def chunk_of(n, CHUNK: tl.constexpr):
    """First element of this program's chunk, and the one behind its last."""
    start = tl.program_id(axis=0).to(tl.int64) * CHUNK
    stop = tl.minimum(start + CHUNK, n)
    return start, stop


@triton.jit
def chunked_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """out[i] = x[i] + y[i] for start <= i < stop."""
    start, stop = chunk_of(n, CHUNK)
    for k in range(0, CHUNK // BLOCK):
        offs = start + k * BLOCK + tl.arange(0, BLOCK)
        owned = start <= offs < stop
        x = tl.load(x_ptr + offs, mask=owned)
        y = tl.load(y_ptr + offs, mask=owned)
        tl.store(out_ptr + offs, x + y, mask=owned)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        chunked_add_kernel[(triton.cdiv(n, CHUNK),)](x, y, out, n, BLOCK=BLOCK, CHUNK=CHUNK)
    return out
