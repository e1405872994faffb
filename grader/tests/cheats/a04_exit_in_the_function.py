"""EXPECT POLICY; unscreened CRASHED from elementwise_add: A4 the process leaves with exit code 0."""

import sys


def elementwise_add(x, y, *, out=None):
    sys.exit(0)
