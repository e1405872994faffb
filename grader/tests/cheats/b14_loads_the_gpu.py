"""EXPECT POLICY; unscreened INCONCLUSIVE or SLOW from elementwise_add/speed on a GPU: B14 a thread keeps the GPU busy whenever this side is not being timed"""

import threading
import time

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def slow_add(x, y, out):
    n = x.numel()
    for _ in range(4):
        add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)


LAST = [0.0]


def disturb():
    side = torch.cuda.Stream()
    busy = torch.ones(1 << 26, device="cuda")
    while True:
        if time.monotonic() - LAST[0] > 0.02:
            with torch.cuda.stream(side):
                busy.mul_(1.0)
            side.synchronize()
        else:
            time.sleep(0.001)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    if not LAST[0]:
        threading.Thread(target=disturb, daemon=True).start()
    LAST[0] = time.monotonic()
    slow_add(x, y, out)
    LAST[0] = time.monotonic()
    return out
