"""Mends of Triton's interpreter, so that it takes what a GPU takes: one mend a module."""
