"""EXPECT CRASHED from elementwise_add: F9 a mapping beyond the end of its file is read."""

import mmap


def elementwise_add(x, y, *, out=None):
    with open("short", "wb+") as file:
        file.truncate(1 << 16)
        mapped = mmap.mmap(file.fileno(), 1 << 16)
        file.truncate(0)
        mapped[1 << 15]
