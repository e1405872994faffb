"""`make bench`: kernels beside their peers on a GPU."""
