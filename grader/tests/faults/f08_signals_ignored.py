"""EXPECT TIMEOUT from elementwise_add: F8 every signal that can be ignored is ignored."""

import signal
import time


def elementwise_add(x, y, *, out=None):
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        pass
