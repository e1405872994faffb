"""EXPECT COMPILE_ERROR from elementwise_add: F1 the function has another name."""

def add(x, y, *, out=None):
    out.copy_(x + y)
