"""EXPECT TIMEOUT from elementwise_add: F8 a lock is taken twice."""

import threading


def elementwise_add(x, y, *, out=None):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=30)
