"""Run pytest for a graded run, with no plugins, conftest files or settings but the grader's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from grader.course import catalog
from grader.grading.options import RunOptions

NO_AUTOLOAD = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"


def run(
    entries: Sequence[catalog.Entry], asked: RunOptions, plugins: Sequence[object], own: Sequence[str] = ()
) -> int:
    """Run pytest on these labs and return its exit code; `own` are further options of pytest."""
    import pytest

    folders = {entry.folder for entry in entries}
    arguments = [
        # The capstone's other folders are inside its main folder.
        *(str(entry.folder) for entry in entries if entry.folder.parent not in folders),
        "-c",
        str(Path(__file__).with_name("grading.ini")),
        "--rootdir",
        str(catalog.ROOT),
        "--noconftest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:terminal",
        "-p",
        "no:logging",
        "-p",
        "grader.grading.plugin",
    ]
    before = os.environ.get(NO_AUTOLOAD)
    os.environ[NO_AUTOLOAD] = "1"  # installed plugins must not take part in grading
    try:
        return pytest.main([*arguments, *own, *asked.pytest_arguments()], plugins=[*plugins])
    finally:
        os.environ.pop(NO_AUTOLOAD)
        os.environ |= {NO_AUTOLOAD: before} if before is not None else {}
