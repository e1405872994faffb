"""EXPECT CRASHED/PROTOCOL from elementwise_add: F15 a frame of another protocol."""

import os
import stat
import struct
import time


def is_socket(fd):
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False


CHANNEL = next(fd for fd in range(3, 256) if is_socket(fd))
GO = 3  # the block of the first call: 1 is the set-up, 2 the announcement


def frame(body, kind=16, block=GO, magic=b"TGRD", length=None):
    return struct.pack("<4sBBHII", magic, 1, kind, 0, block, len(body) if length is None else length) + body


def send(data):
    while data:
        data = data[os.write(CHANNEL, data):]


def elementwise_add(x, y, *, out=None):
    send(frame(b"{}", magic=b"XXXX"))
    time.sleep(20)
