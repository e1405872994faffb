"""EXPECT TIMEOUT from elementwise_add: F14 four threads print as fast as they can."""

import os
import threading
import time


def elementwise_add(x, y, *, out=None):
    def pour(fd):
        end = time.monotonic() + 30
        while time.monotonic() < end:
            os.write(fd, b"x" * 4096)


    for k in range(4):
        threading.Thread(target=pour, args=(1 + k % 2,)).start()
    time.sleep(30)
