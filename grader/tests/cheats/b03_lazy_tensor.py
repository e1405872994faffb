"""EXPECT POLICY; unscreened WRONG/UNWRITTEN or POLICY/FOREIGN_KERNEL from elementwise_add: B3 a subclass of Tensor that computes when it is looked at"""

import torch


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        done = [arg.x + arg.y if isinstance(arg, Lazy) else arg for arg in args]
        return function(*done, **(kwargs or {}))


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    lazy = torch.Tensor._make_subclass(Lazy, out)
    lazy.x, lazy.y = x, y
    return lazy
