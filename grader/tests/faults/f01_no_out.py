"""EXPECT COMPILE_ERROR from elementwise_add: F1 the function takes no out."""

def elementwise_add(x, y):
    return x + y
