"""EXPECT RESOURCE_LIMIT from elementwise_add: F11 a grandchild in a session of its own that holds the pipes."""

import os
import time

CALLS = []


def elementwise_add(x, y, *, out=None):
    if CALLS:
        return out.copy_(x + y)
    CALLS.append(1)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(20)
        os._exit(0)
    out.copy_(x + y)
