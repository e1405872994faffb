"""Find the items that a command asks for, with pytest's own matching of `-k`, without grading anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grader.classroom.records import Unit
from grader.course import catalog
from grader.course.items import Item
from grader.grading import pytest_run
from grader.grading.options import RunOptions


def units(keyword: str, asked: Sequence[Unit], hidden: Path | None = None) -> list[Unit]:
    """Return those of `asked` with a matching item, including cases of the file `hidden`."""
    found = {parent.name for item in items(keyword, asked, hidden) for parent in item.entry.lab_file.parents}
    return [unit for unit in asked if unit.name in found]


def items(keyword: str, asked: Sequence[Unit], hidden: Path | None = None) -> list[Item]:
    """Return the matching items of some units, in the order of grading; none for an invalid expression."""
    names = {unit.name for unit in asked}
    entries = [entry for entry in catalog.find() if entry.folder.name in names]
    if catalog.CAPSTONE.name in names:
        entries += catalog.capstone()
    options, matched = RunOptions(tier="cpu", keyword=keyword, hidden=hidden), _Matched()
    if pytest_run.run(entries, options, [matched], ["--collect-only"]):
        return []
    return matched.items


class _Matched:
    """Pytest plugin that records the selected items."""

    def __init__(self):
        self.items: list[Item] = []

    def pytest_collection_finish(self, session):
        """Record every selected item."""
        self.items = [item.asked for item in session.items]
