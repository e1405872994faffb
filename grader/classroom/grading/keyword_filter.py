"""Find the units that have items matching `-k`, with pytest's own matching, before anything is graded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grader.classroom.records import Unit
from grader.course import catalog
from grader.grading import pytest_run
from grader.grading.options import RunOptions


def units(keyword: str, asked: Sequence[Unit], hidden: Path | None = None) -> list[Unit]:
    """Return those of `asked` with a matching item, including cases of the file `hidden`."""
    names = {unit.name for unit in asked}
    entries = [entry for entry in catalog.find() if entry.folder.name in names]
    if catalog.CAPSTONE.name in names:
        entries += catalog.capstone()
    options, matched = RunOptions(tier="cpu", keyword=keyword, hidden=hidden), _Matched()
    if pytest_run.run(entries, options, [matched], ["--collect-only"]):
        return []  # no match, or an invalid expression
    found = {parent.name for path in matched.files for parent in path.parents}
    return [unit for unit in asked if unit.name in found]


class _Matched:
    """Pytest plugin that records the labs of the selected items."""

    def __init__(self):
        self.files: set[Path] = set()

    def pytest_collection_finish(self, session):
        """Record every lab.py with a selected item."""
        self.files = {item.path for item in session.items}
