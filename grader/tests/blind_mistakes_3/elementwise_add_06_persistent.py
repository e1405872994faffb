# labs/lab1_elementwise_add/elementwise_add.py | corner | persistent_add_kernel, the loop's step: tl.num_programs(1) is always 1, so with more than one tile program p does all tiles from p on, and several programs store the same elements (a race, and many times the traffic, though the values agree); it must be tl.num_programs(0).
import torch
import triton
import triton.language as tl


@triton.jit
def persistent_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    tiles = tl.cdiv(n, BLOCK)
    lanes = tl.arange(0, BLOCK)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(1)):
        offs = tl.cast(tile, tl.int64) * BLOCK + lanes
        ok = offs < n
        x = tl.load(x_ptr + offs, mask=ok, eviction_policy="evict_first")
        y = tl.load(y_ptr + offs, mask=ok, eviction_policy="evict_first")
        tl.store(out_ptr + offs, x + y, mask=ok)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y with a fixed number of programs"""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 4
    programs = min(8 * sms, triton.cdiv(n, 4096))
    persistent_add_kernel[(programs,)](x, y, out, n, BLOCK=4096, num_warps=8)
    return out
