"""EXPECT CRASHED from elementwise_add: F9 the C stack overflows."""

import sys


class Nested:
    def __repr__(self):
        return repr([self])


def elementwise_add(x, y, *, out=None):
    sys.setrecursionlimit(10**9)
    repr(Nested())
