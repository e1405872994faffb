"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL from matmul: C1 cuBLAS computes"""

import torch


def matmul(a, b, *, out=None):
    out = a.new_empty((a.shape[0], b.shape[1])) if out is None else out
    return torch.mm(a, b, out=out)
