"""EXPECT CRASHED from elementwise_add: F9 sys.exit(0) in the function."""

import sys


def elementwise_add(x, y, *, out=None):
    sys.exit(0)
