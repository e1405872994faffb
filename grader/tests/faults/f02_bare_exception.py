"""EXPECT NOT_STARTED from elementwise_add: F2 an exception of one's own words, met only when it runs."""

def elementwise_add(x, y, *, out=None):
    if x.numel() >= 0:
        raise NotImplementedError("later")
