"""EXPECT CRASHED from elementwise_add: F9 a recursion without end."""

def elementwise_add(x, y, *, out=None):
    elementwise_add(x, y, out=out)
