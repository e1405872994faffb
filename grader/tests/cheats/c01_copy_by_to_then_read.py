"""EXPECT POLICY; unscreened POLICY/HOST_READ from elementwise_add: C1 x.to(float64) makes copies of the file's own, which Python reads and adds; each sum is an argument of a launch"""

import torch
import triton
import triton.language as tl


@triton.jit
def put_kernel(out_ptr, place, value):
    tl.store(out_ptr + place, value)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    left = x.to(torch.float64)
    right = y.to(torch.float64)
    place = 0
    for a, b in zip(left, right):
        put_kernel[(1,)](out, place, float(f"{float(a)!r}") + float(b))
        place += 1
    return out
