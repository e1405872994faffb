"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL or CRASHED from elementwise_add: C2 sums are written through raw pointers, past torch and Triton"""

import ctypes


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    n = x.numel()
    width = ctypes.c_float * n
    one, other, sums = (width.from_address(t.data_ptr()) for t in (x, y, out))  # on a GPU a segfault
    for i in range(n):
        sums[i] = one[i] + other[i]
    return out
