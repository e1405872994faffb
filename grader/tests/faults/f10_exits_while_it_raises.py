"""EXPECT CRASHED from elementwise_add: F10 exit code 0 from the text of an exception."""

import os


class Sly(Exception):
    def __str__(self):
        os._exit(0)


def elementwise_add(x, y, *, out=None):
    raise Sly
