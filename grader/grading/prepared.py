"""Make a process ready to grade before it knows what: its imports, and the fork server with its own.

`watch` keeps one run prepared while it waits for a save, and `grade` on a terminal leaves one behind.
"""

from __future__ import annotations

import importlib

from grader.system import gpu
from grader.worker.session import Session

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


def prepare(tier: str) -> None:
    """Import what a run of this tier needs, and start its fork server."""
    Session.prepare("cuda" if tier != "cpu" and gpu.find()[0] else "cpu")
    for name in IMPORTED:
        importlib.import_module(name)
