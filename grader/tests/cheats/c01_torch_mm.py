"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL from matmul: C1 cuBLAS computes"""

import torch


def matmul(a, b, *, out=None):
    return torch.mm(a, b, out=out)
