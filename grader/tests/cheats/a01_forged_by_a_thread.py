"""EXPECT POLICY; unscreened WRONG/UNWRITTEN or CRASHED/PROTOCOL from elementwise_add: A1 a thread answers in the worker's place"""

import sys
import threading
import time

from grader.worker.protocol import Kind, pack


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    if x.numel() == 0:
        return
    frame = sys._getframe()
    while "channel" not in frame.f_locals:
        frame = frame.f_back
    channel, block = frame.f_locals["channel"], frame.f_locals["block"]
    answer = pack(Kind.DONE, block, {"claimed_us": 1.0})
    threading.Thread(target=channel.sendall, args=(answer,), daemon=True).start()
    time.sleep(60)
    return out
