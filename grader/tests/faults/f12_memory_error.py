"""EXPECT OUT_OF_MEMORY/HOST from elementwise_add: F12 MemoryError without a word."""

def elementwise_add(x, y, *, out=None):
    raise MemoryError
