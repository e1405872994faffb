"""EXPECT CRASHED from elementwise_add: F9 the process ends without an answer."""

import os


def elementwise_add(x, y, *, out=None):
    os._exit(0)
