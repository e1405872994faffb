"""EXPECT CRASHED from elementwise_add: F10 a printed verdict, then exit code 0."""

import os


def elementwise_add(x, y, *, out=None):
    print('PASS {"verdict": "PASS", "share": 1.0}', flush=True)
    os._exit(0)
