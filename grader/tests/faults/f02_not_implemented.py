"""EXPECT NOT_STARTED from elementwise_add: F2 the skeleton's own exception."""

def elementwise_add(x, y, *, out=None):
    raise NotImplementedError("TODO 3: launch enough programs to cover n elements")
