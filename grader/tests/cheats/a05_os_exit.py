"""EXPECT POLICY; unscreened CRASHED from elementwise_add: A5 the process ends at once, past every handler"""

import os


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    os._exit(0)
    return out
