"""EXPECT CRASHED from elementwise_add: F9 every descriptor is closed, the channel too."""

import os


def elementwise_add(x, y, *, out=None):
    os.closerange(0, 256)
    out.copy_(x + y)
