"""Ctrl-C ends a graded run at once, with all that it started; it writes no results."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

from grader.system import process_tree
from grader.system.exit_codes import INTERRUPTED
from grader.worker.session import Session

# A progress bar may have hidden the cursor, and its line is cleared.
SHOW_CURSOR, CLEAR_LINE = "\x1b[?25h", "\r\x1b[2K"
WORDS = "stopped by Ctrl-C; the results of the run before are kept"


@contextlib.contextmanager
def at_ctrl_c(is_terminal: bool) -> Iterator[None]:
    """End this process, with exit code 130, when Ctrl-C is pressed while this is open.

    An exception would be caught by whatever happens to run, and cleaning up after it takes seconds.
    """

    def end(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        words = f"{CLEAR_LINE}{SHOW_CURSOR}{WORDS}\n" if is_terminal else f"{WORDS}\n"
        with contextlib.suppress(OSError):
            os.write(screen, words.encode())
        process_tree.end_children()
        Session.remove_folders()
        os._exit(INTERRUPTED)

    screen = os.dup(1)  # pytest puts a file in place of the output while a case runs
    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        os.close(screen)
