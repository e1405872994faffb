"""EXPECT RESOURCE_LIMIT from elementwise_add on a CPU: F11 a child takes over the channel, the worker itself ends."""

import os
import time


def elementwise_add(x, y, *, out=None):
    if os.fork():
        os._exit(0)
    time.sleep(20)
    os._exit(0)
