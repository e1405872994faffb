"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL or POLICY/HOST_READ from elementwise_add: C2 numpy computes"""

import numpy
import torch


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    total = numpy.add(x.cpu().numpy(), y.cpu().numpy())
    out.copy_(torch.from_numpy(total))
    return out
