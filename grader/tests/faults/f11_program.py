"""EXPECT RESOURCE_LIMIT from elementwise_add: F11 another program is started."""

import subprocess

CALLS = []


def elementwise_add(x, y, *, out=None):
    if CALLS:
        return out.copy_(x + y)
    CALLS.append(1)
    subprocess.Popen(["/bin/sleep", "20"], start_new_session=True)
    out.copy_(x + y)
