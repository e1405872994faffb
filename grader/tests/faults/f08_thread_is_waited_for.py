"""EXPECT TIMEOUT from elementwise_add: F8 the function waits for a thread that sleeps."""

import threading
import time


def elementwise_add(x, y, *, out=None):
    thread = threading.Thread(target=time.sleep, args=(30,))
    thread.start()
    thread.join()
