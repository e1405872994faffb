"""EXPECT CRASHED or COMPILE_ERROR from elementwise_add: A17 a kernel opens files by np.load, where the interpreter leaves its numpy among the file's names"""

import torch
import triton
import triton.language as tl

for np in ():
    pass

PLACES = ("/etc/hostname", "/proc/1/cmdline", "/proc/1/maps", "../../results/results.json", "reference.npy")


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=mask) + tl.load(y_ptr + at, mask=mask), mask=mask)


@triton.jit
def read_kernel(out_ptr, which):
    np.load(PLACES[int(which)], mmap_mode="r", allow_pickle=True)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
        read_kernel[(1,)](out, n % len(PLACES))
    return out
