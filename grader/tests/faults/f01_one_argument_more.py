"""EXPECT COMPILE_ERROR from elementwise_add: F1 the function takes a third operand."""

def elementwise_add(x, y, z, *, out=None):
    out.copy_(x + y + z)
