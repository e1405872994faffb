# labs/lab1_elementwise_add/elementwise_add.py | error | In `stream_in`, `tl.load(ptr + offs, mask=offs < n, cache_modifier=".cs")`: `.cs` exists for `tl.store` only; a load takes `.ca`, `.cg` or `.cv` (or none), so Triton raises ValueError that the cache modifier is not supported. All cases with n >= 1.
"""Add two vectors as streams: nothing is used twice, so nothing should stay in the caches."""

import torch
import triton
import triton.language as tl

LANES = 1024
PARTS = 2


@triton.jit
def stream_in(ptr, offs, n):
    """A block that is read once."""
    return tl.load(ptr + offs, mask=offs < n, cache_modifier=".cs")


@triton.jit
def stream_out(ptr, offs, block, n):
    """A block that is written once, and not read again soon."""
    tl.store(ptr + offs, block, mask=offs < n, cache_modifier=".cs")


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    LANES: tl.constexpr,
    PARTS: tl.constexpr,
):
    """out[i] = x[i] + y[i]; each program owns PARTS blocks of LANES elements, one after the other."""
    start = tl.program_id(axis=0).to(tl.int64) * (LANES * PARTS)
    lane = tl.arange(0, LANES)
    for part in tl.static_range(PARTS):
        offs = start + part * LANES + lane
        x = stream_in(x_ptr, offs, n)
        y = stream_in(y_ptr, offs, n)
        stream_out(out_ptr, offs, x + y, n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    result = torch.empty_like(x) if out is None else out
    n = x.numel()
    programs = triton.cdiv(n, LANES * PARTS)
    if programs > 0:
        elementwise_add_kernel[(programs,)](x, y, result, n, LANES=LANES, PARTS=PARTS)
    return result
