"""EXPECT COMPILE_ERROR from elementwise_add: F1 the function takes one operand."""

def elementwise_add(x, *, out=None):
    out.copy_(x)
