"""EXPECT POLICY; unscreened CRASHED from elementwise_add: D6 prlimit gives the judge one second of processor time, and the kernel kills it"""

import os
import resource


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))
    raise PermissionError("the limit was set")
    return out
