"""EXPECT CRASHED from elementwise_add: F9 a real-time signal, which has no name in Python."""

import os


def elementwise_add(x, y, *, out=None):
    os.kill(os.getpid(), 40)
