"""Commands of the course, run in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

from grader.tests.helpers.course import ROOT, SEED

OWN_OPTIONS = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "PYTHONPATH", "PYTEST_ADDOPTS", "PYTEST_PLUGINS")


def plain_environment(**more: str) -> dict[str, str]:
    """The environment without what could change a report."""
    return {name: value for name, value in os.environ.items() if name not in OWN_OPTIONS} | more


def python(*arguments: object, root: Path = ROOT, **more: str) -> subprocess.CompletedProcess:
    """Python with these arguments in the folder of a course, `root`; `more` goes into its environment."""
    command = [sys.executable, "-B", *map(str, arguments)]
    return subprocess.run(
        command, cwd=root, env=plain_environment(**more), capture_output=True, timeout=240, check=False,
        encoding="utf-8", errors="replace",
    )  # fmt: skip


def grade(*arguments: object, **more) -> subprocess.CompletedProcess:
    """`python -m grader grade` with these arguments, on the CPU tier unless they say otherwise."""
    tier = [] if "--tier" in arguments else ["--tier", "cpu"]
    return python("-m", "grader", "grade", "--seed", SEED, *tier, *arguments, **more)
