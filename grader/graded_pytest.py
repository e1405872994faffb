"""Pytest as a graded run calls it: no plugin, no conftest and no setting but the grader's own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from grader import catalog


def run(entries: Sequence[catalog.Entry], options: Sequence[str], plugins: Sequence[object]) -> int:
    """Pytest's exit code over these labs."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # no plugin of somebody else's takes part in a grade
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
        "grader.plugin",
    ]
    return pytest.main([*arguments, *options], plugins=[*plugins])
