"""EXPECT CRASHED from elementwise_add: F9 an exception whose text raises."""

class Sly(Exception):
    def __str__(self):
        raise self


def elementwise_add(x, y, *, out=None):
    raise Sly
