"""EXPECT CRASHED from elementwise_add: F9 a null pointer is read."""

import ctypes


def elementwise_add(x, y, *, out=None):
    ctypes.string_at(0)
