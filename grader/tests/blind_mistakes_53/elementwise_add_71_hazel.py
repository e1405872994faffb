# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In the loop of `elementwise_add_kernel`, `offs = ahead`, `x = x_ahead`, `y = y_ahead` stand before `tl.store(out_ptr + offs, x + y, mask=offs < n)`; the store must come first. The first block of every program is never stored: for n up to programs * BLOCK nothing at all is written, for larger n the first programs * BLOCK elements are missing.
"""Add two vectors with a fixed number of programs; each fetches its next block ahead of time."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS_PER_SM = 16
SMS_WITHOUT_GPU = 4


@triton.jit
def fetch(x_ptr, y_ptr, offs, n):
    """Both blocks at offs; lanes from n on are not read."""
    exists = offs < n
    return tl.load(x_ptr + offs, mask=exists), tl.load(y_ptr + offs, mask=exists)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    blocks,  # n / BLOCK, rounded up
    BLOCK: tl.constexpr,
):
    """Program pid owns the blocks pid, pid + programs, pid + 2 * programs, ..."""
    pid = tl.program_id(axis=0)
    programs = tl.num_programs(axis=0)
    stride = programs.to(tl.int64) * BLOCK

    offs = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x, y = fetch(x_ptr, y_ptr, offs, n)
    for _ in range(pid, blocks, programs):
        # Ask for the next block now, so that its loads are under way during the store.
        ahead = offs + stride
        x_ahead, y_ahead = fetch(x_ptr, y_ptr, ahead, n)
        offs = ahead
        x = x_ahead
        y = y_ahead
        tl.store(out_ptr + offs, x + y, mask=offs < n)


def programs_for(x: torch.Tensor, blocks: int) -> int:
    """As many programs as the GPU holds at once, and no more than there are blocks."""
    sms = SMS_WITHOUT_GPU
    if x.is_cuda:
        sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    return min(blocks, sms * PROGRAMS_PER_SM)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    blocks = triton.cdiv(n, BLOCK)
    elementwise_add_kernel[(programs_for(x, blocks),)](x, y, out, n, blocks, BLOCK=BLOCK)
    return out
