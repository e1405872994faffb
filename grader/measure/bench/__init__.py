"""`make bench`: time kernels beside their peers on a GPU."""
