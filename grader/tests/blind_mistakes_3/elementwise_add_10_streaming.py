# labs/lab1_elementwise_add/elementwise_add.py | error | streaming_add: cache_modifier=".cs" is a modifier of stores only, tl.load refuses it ("Cache modifier .cs not supported"); a load takes ".ca", ".cg" or ".cv", or eviction_policy="evict_first".
import torch
import triton
import triton.language as tl


@triton.jit
def streaming_add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    # nothing is read twice: do not pollute the caches
    x = tl.load(x_ptr + offs, mask=mask, cache_modifier=".cs")
    y = tl.load(y_ptr + offs, mask=mask, cache_modifier=".cs")
    tl.store(out_ptr + offs, x + y, mask=mask, cache_modifier=".cs")


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    result = out if out is not None else torch.empty_like(x)
    count = x.numel()
    if count > 0:
        block = 2048 if x.element_size() == 2 else 1024
        streaming_add[(triton.cdiv(count, block),)](x, y, result, count, BLOCK=block)
    return result
