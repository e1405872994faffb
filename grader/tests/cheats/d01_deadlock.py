"""EXPECT POLICY; unscreened TIMEOUT from elementwise_add: D1 a lock is taken twice, and SIGTERM is ignored"""

import signal
import threading

LOCK = threading.Lock()


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    LOCK.acquire()
    LOCK.acquire()
    return out
