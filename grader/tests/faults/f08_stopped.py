"""EXPECT TIMEOUT from elementwise_add: F8 the process stops itself."""

import os
import signal


def elementwise_add(x, y, *, out=None):
    os.kill(os.getpid(), signal.SIGSTOP)
