"""EXPECT OUT_OF_MEMORY/GPU from elementwise_add on a GPU: F13 the GPU is filled in steps of a GiB."""

import torch


def elementwise_add(x, y, *, out=None):
    kept = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(1000)]
    out.copy_(x + y)
