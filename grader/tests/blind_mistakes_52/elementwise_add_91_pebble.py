# labs/lab1_elementwise_add/elementwise_add.py | corner | The heuristic of `add_kernel`, `"WHOLE": lambda args: args["n"] % 16 == 0`, should be `args["n"] % args["BLOCK"] == 0`: masks are dropped for every multiple of 16. Shows (reads and writes out of bounds) where n is a multiple of 16 but not of the block (1024 in fp32, 2048 in 16 bits): n = 48, 256, 512 in fp32 and 1536 in fp16.
"""Add two vectors: vectors without a partial block take a path without masks."""

import torch
import triton
import triton.language as tl

# A thread moves 16 bytes with one instruction, a program has 128 threads, and two accesses a thread are in flight.
BYTES = 4096


@triton.jit
def _read(ptr, offs, n, WHOLE: tl.constexpr):
    if WHOLE:
        values = tl.load(ptr + offs)
    else:
        values = tl.load(ptr + offs, mask=offs < n)
    return values


@triton.jit
def _write(ptr, offs, values, n, WHOLE: tl.constexpr):
    if WHOLE:
        tl.store(ptr + offs, values)
    else:
        tl.store(ptr + offs, values, mask=offs < n)


@triton.heuristics({"WHOLE": lambda args: args["n"] % 16 == 0})
@triton.jit
def add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,  # no lane lies past the end: no mask is needed
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    x = _read(x_ptr, offs, n, WHOLE)
    y = _read(y_ptr, offs, n, WHOLE)
    _write(out_ptr, offs, x + y, n, WHOLE)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    block = BYTES // x.element_size()
    add_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block)
    return out
