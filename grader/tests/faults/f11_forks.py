"""EXPECT RESOURCE_LIMIT from elementwise_add: F11 64 children that sleep."""

import os
import time

CALLS = []


def elementwise_add(x, y, *, out=None):
    if CALLS:
        return out.copy_(x + y)
    CALLS.append(1)
    for _ in range(64):
        if os.fork() == 0:
            time.sleep(15)
            os._exit(0)
    out.copy_(x + y)
