"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL from softmax: C1 forward and backward are torch's own"""

import torch


def softmax(x):
    return torch.softmax(x, dim=1)
