"""EXPECT CRASHED from elementwise_add on a GPU: F5 an assertion fails on the device."""

import torch


def elementwise_add(x, y, *, out=None):
    place = torch.full((1,), 1 << 20, device=x.device)
    torch.zeros(4, device=x.device)[place]
    out.copy_(x + y)
