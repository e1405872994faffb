# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) elementwise_add, host: chunk = n // workers is rounded down, so the last n % workers elements are never written; it must be cdiv. (2) elementwise_add_kernel, the mask of the lanes: <= lets one lane too many through at the end of a chunk, and past the end of the vector; it must be <
import torch
import triton
import triton.language as tl

BLOCK = 1024
WORKERS = 1056  # 8 for each SM of an H200


@triton.jit
def elementwise_add_kernel(xs, ys, zs, n, chunk, BLOCK: tl.constexpr):
    """Each worker adds one contiguous chunk of the vectors, a block at a time."""
    first = tl.program_id(0).to(tl.int64) * chunk
    last = tl.minimum(first + chunk, n)
    xs += first
    ys += first
    zs += first
    todo = last - first
    lane = tl.arange(0, BLOCK)
    for done in range(0, chunk, BLOCK):
        live = lane <= todo - done
        total = tl.load(xs + lane, mask=live) + tl.load(ys + lane, mask=live)
        tl.store(zs + lane, total, mask=live)
        xs += BLOCK
        ys += BLOCK
        zs += BLOCK


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n = x.size(0)
    if n == 0:
        return out
    workers = min(WORKERS, triton.cdiv(n, BLOCK))
    chunk = n // workers
    elementwise_add_kernel[(workers,)](x, y, out, n, chunk, BLOCK=BLOCK)
    return out
