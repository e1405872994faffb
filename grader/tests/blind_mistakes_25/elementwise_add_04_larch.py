# labs/lab1_elementwise_add/elementwise_add.py | right | right
"""x + y by a crew of programs that walks from the end of the vectors to their beginning."""

import itertools

import torch
import triton
import triton.language as tl

CREW = 4096  # programs at most

CONFIGS = [
    triton.Config({"WIDTH": width}, num_warps=warps)
    for width, warps in itertools.product((1024, 2048, 4096), (4, 8))
]


@triton.jit
def piece(ptr, where, n):
    return tl.load(ptr + where, mask=where < n)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def walk_back(x_ptr, y_ptr, out_ptr, n, WIDTH: tl.constexpr):
    """Program k adds the k-th block from the end, then every crew-th one before it. n is at least 1."""
    crew = tl.num_programs(axis=0)
    lane = tl.arange(0, WIDTH)
    # (n - 1) // WIDTH is the number of the last block; int64, because block * WIDTH may pass 2^31.
    block = (n - 1) // WIDTH - tl.program_id(axis=0).to(tl.int64)
    while block >= 0:
        where = block * WIDTH + lane
        total = piece(x_ptr, where, n) + piece(y_ptr, where, n)
        tl.store(out_ptr + where, total, mask=where < n)
        block -= crew


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if not n:
        return out  # no element, no program

    def grid(meta):
        return (min(CREW, triton.cdiv(n, meta["WIDTH"])),)

    walk_back[grid](x, y, out, n)
    return out
