"""EXPECT OUT_OF_MEMORY/HOST from elementwise_add: F12 a petabyte through torch."""

import torch


def elementwise_add(x, y, *, out=None):
    torch.empty(1 << 50, dtype=torch.uint8)
