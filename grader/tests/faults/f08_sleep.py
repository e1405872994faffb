"""EXPECT TIMEOUT from elementwise_add: F8 a long sleep."""

import time


def elementwise_add(x, y, *, out=None):
    time.sleep(30)
