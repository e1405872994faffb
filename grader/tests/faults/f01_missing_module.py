"""EXPECT COMPILE_ERROR from elementwise_add: F1 a module that is not there."""

import nothing_of_that_name

def elementwise_add(x, y, *, out=None):
    out.copy_(x + y)
