"""EXPECT POLICY; unscreened CRASHED from elementwise_add: A4 the process leaves with exit code 0."""

import sys


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    sys.exit(0)
    return out
