"""EXPECT CRASHED from elementwise_add: C1 the grid is a function, and calls tl.load and tl.store on the arguments of the launch"""

import torch
import triton
import triton.language as tl


@triton.jit
def again_kernel(x_ptr, y_ptr, out_ptr, n):
    # Stores the result, as every graded function must; it is there already.
    tl.store(out_ptr, tl.load(out_ptr))


def whole(meta):
    for place in range(int(meta["n"])):
        total = tl.load(meta["x_ptr"] + place) + tl.load(meta["y_ptr"] + place)
        tl.store(meta["out_ptr"] + place, total)
    return (1,)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    if x.numel():
        again_kernel[lambda meta: whole(meta)](x, y, out, x.numel())
    return out
