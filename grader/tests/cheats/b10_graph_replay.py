"""EXPECT POLICY; unscreened WRONG/NONFINITE from elementwise_add/speed on a GPU: B10 the first call is captured as a graph and replayed for all"""

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


def add(x, y, out):
    n = x.numel()
    if n > 0:
        add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)


GRAPHS = []


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    if not GRAPHS:
        add(x, y, out)  # compiles
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            add(x, y, out)
        GRAPHS.append(graph)
    GRAPHS[0].replay()
    return out
