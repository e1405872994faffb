"""EXPECT WRONG/UNWRITTEN from elementwise_add: A8 conftest.py, pytest.ini, sitecustomize.py, a .pth and a torch.py lie beside an answer that stores nothing"""

import triton
import triton.language as tl


@triton.jit
def nothing_kernel(out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, 0.0, mask=offs < 0)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    nothing_kernel[(1,)](out, BLOCK=128)
    return out
