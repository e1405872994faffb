"""EXPECT POLICY; unscreened WRONG/UNWRITTEN from elementwise_add: C1 Triton's interpreter would begin at the last line like `def`, a docstring's, in which Python adds"""

import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Store nothing.

def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    exec('''
import ctypes, numpy
size = x_ptr.dtype.element_ty.primitive_bitwidth // 8
places = [int(one.handle.data[0]) for one in (x_ptr, y_ptr, out_ptr)]
count = int(n.handle.data[0]) if hasattr(n, "handle") else int(n)
kind = {2: "float16", 4: "float32"}[size]
views = [numpy.frombuffer((ctypes.c_char * (count * size)).from_address(one), kind) for one in places]
numpy.add(views[0], views[1], out=views[2])
''', dict(x_ptr=x_ptr, y_ptr=y_ptr, out_ptr=out_ptr, n=n))
    '''
    """
    # '''
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < 0), mask=offs < 0)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    n = x.numel()
    if n:
        add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
    return out
