"""Which formula a wrong output follows: of the values that the reference computes, and a few operations."""
