"""EXPECT CRASHED from elementwise_add: F2 what PyTorch has not implemented is no placeholder of the file."""

import torch


def elementwise_add(x, y, *, out=None):
    return torch.empty(x.shape, device="meta").cpu()
