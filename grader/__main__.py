"""`python -m grader`."""

import os
import sys

from grader.cli.main import main
from grader.cli.shared import Ended

try:
    main(prog_name="python -m grader")
except Ended as ended:
    sys.stdout.flush()
    sys.stderr.flush()
    # Python would now take torch and its CUDA context apart, for up to a second.
    os._exit(int(ended.code or 0))
