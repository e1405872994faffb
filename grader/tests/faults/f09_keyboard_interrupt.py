"""EXPECT CRASHED from elementwise_add: F9 KeyboardInterrupt."""

def elementwise_add(x, y, *, out=None):
    raise KeyboardInterrupt
