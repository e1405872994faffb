"""EXPECT CRASHED from elementwise_add: F9 abort()."""

import os


def elementwise_add(x, y, *, out=None):
    os.abort()
