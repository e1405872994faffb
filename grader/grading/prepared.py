"""Make a process ready to grade before it knows what: its imports, and the fork server with its own.

`watch` keeps one run prepared while it waits for a save, and `grade` on a terminal leaves one behind.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator

from grader.system import gpu
from grader.worker.session import LEAN, Session

# What the first case of a run, and its first failure, would import.
IMPORTED = (
    "pytest",
    "grader.grading.plugin",
    "grader.grading.progress",
    "grader.grading.collect",
    "grader.judge.correctness",
    "grader.judge.explanation",
    "grader.report.exports",
    "grader.report.terminal",
)


@contextlib.contextmanager
def early(tier: str) -> Iterator[None]:
    """Start the fork server of a run now, unless one is prepared: it imports while this process does.

    Where memory is short, fork servers start when they are needed.
    """
    if not Session.is_prepared() and LEAN not in os.environ:
        _start(tier)
    try:
        yield
    finally:
        Session.close_prepared()


def prepare(tier: str) -> None:
    """Import what a run of this tier needs, and start its fork server."""
    _start(tier)
    for name in IMPORTED:
        importlib.import_module(name)


def _start(tier: str) -> None:
    Session.prepare("cuda" if tier != "cpu" and gpu.find()[0] else "cpu")
