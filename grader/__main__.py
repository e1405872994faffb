"""`python -m grader`."""

import os
import signal
import sys


def stop(_number, _frame):
    """End at once: nothing has been started yet, and a traceback of an import says nothing."""
    os.write(2, b"stopped by Ctrl-C\n")
    os._exit(130)


signal.signal(signal.SIGINT, stop)

from grader.cli.main import main  # noqa: E402 - its imports are what takes time
from grader.cli.shared import Ended  # noqa: E402

signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    main(prog_name="python -m grader")
except Ended as ended:
    sys.stdout.flush()
    sys.stderr.flush()
    # Python would now take torch and its CUDA context apart, for up to a second.
    os._exit(int(ended.code or 0))
