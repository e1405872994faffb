"""EXPECT POLICY; unscreened WRONG/UNWRITTEN or CRASHED/PROTOCOL from elementwise_add: A1 a frame that claims success is written to the channel"""

import os
import stat
import struct
import sys
import time


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    if x.numel() == 0:
        return
    frame = sys._getframe()
    while "block" not in frame.f_locals:  # the number of the question lies in the worker's main loop
        frame = frame.f_back
    body = b'{"claimed_us": 1.0}'
    header = struct.pack("<4sBBHII", b"TGRD", 1, 16, 0, frame.f_locals["block"], len(body))
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.write(fd, header + body)
        except OSError:
            pass
    time.sleep(60)  # the worker's own answer must not follow
    return out
