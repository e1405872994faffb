# labs/lab1_elementwise_add/elementwise_add.py | corner | In `elementwise_add_kernel`, `first = pid * per_program + rest` should be `first = pid * per_program + tl.minimum(pid, rest)`. Where the number of tiles is more than 1024 and no multiple of 1024, the first `rest` tiles are not written (others are stored twice, with the same bits): n = 2^20 + 3 has 1025 tiles, and its first 1024 elements stay unwritten. All smaller sizes and n = 2^28 are right.
"""Add two vectors with a fixed number of programs, each of which owns a run of neighbouring tiles."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 1024  # seven or eight on each multiprocessor of an H200


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    per_program,  # tiles that every program has
    rest,  # programs that have one tile more
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; a program owns neighbouring tiles of BLOCK elements, one after the other.

    The runs of two programs differ by one tile at most: the first `rest` programs take the tiles that are left over
    where the number of tiles is no multiple of the number of programs.
    """
    pid = tl.program_id(axis=0).to(tl.int64)
    first = pid * per_program + rest
    last = first + per_program + tl.where(pid < rest, 1, 0)

    lanes = tl.arange(0, BLOCK)
    for tile in range(first, last):
        offs = tile * BLOCK + lanes
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
    if n == 0:
        return out
    tiles = triton.cdiv(n, BLOCK)
    programs = min(tiles, PROGRAMS)
    per_program, rest = divmod(tiles, programs)
    elementwise_add_kernel[(programs,)](x, y, out, n, per_program, rest, BLOCK=BLOCK)
    return out
