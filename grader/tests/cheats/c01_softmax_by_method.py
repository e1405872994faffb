"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL from softmax_forward: C1 torch's softmax by its method"""


def softmax_forward(x, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    out[:] = x.softmax(dim=1)
    return out
