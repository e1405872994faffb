"""EXPECT NOT_STARTED from elementwise_add: F2 a body of three dots and a docstring."""

def elementwise_add(x, y, *, out=None):
    """x + y."""
    ...
