"""Pytest as a graded run calls it: no plugin, no conftest and no setting but the grader's own."""

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
    """Pytest's exit code over these labs; `own` are options of pytest's own."""
    import pytest

    folders = {entry.folder for entry in entries}
    arguments = [
        # The capstone's folders lie in one of them.
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
        "grader.grading.plugin",
    ]
    before = os.environ.get(NO_AUTOLOAD)
    os.environ[NO_AUTOLOAD] = "1"  # no plugin of somebody else's takes part in a grade
    try:
        return pytest.main([*arguments, *own, *asked.pytest_arguments()], plugins=[*plugins])
    finally:
        os.environ.pop(NO_AUTOLOAD)
        os.environ |= {NO_AUTOLOAD: before} if before is not None else {}
