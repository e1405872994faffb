"""EXPECT OUT_OF_MEMORY/HOST from elementwise_add: F12 an exabyte at once."""

def elementwise_add(x, y, *, out=None):
    bytearray(1 << 60)
