"""EXPECT OUT_OF_MEMORY/GPU from elementwise_add on a GPU: F13 a petabyte on the GPU."""

import torch


def elementwise_add(x, y, *, out=None):
    torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
