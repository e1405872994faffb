"""Of which units `-k` leaves something to grade, as pytest itself matches; asked before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grader import catalog, graded_pytest
from grader.batch.models import Unit


def units(keyword: str, asked: Sequence[Unit], hidden: Path | None = None) -> list[Unit]:
    """Those of `asked` with an item that matches, cases of the file `hidden` among them."""
    names = {unit.name for unit in asked}
    entries = [entry for entry in catalog.find() if entry.folder.name in names]
    if catalog.CAPSTONE.name in names:
        entries += catalog.capstone()
    options = ["--collect-only", "--tier", "cpu", "-k", keyword]
    options += ["--hidden", str(hidden)] if hidden else []
    matched = _Matched()
    if graded_pytest.run(entries, options, [matched]):  # also for words that are no expression
        return []
    found = {parent.name for path in matched.files for parent in path.parents}
    return [unit for unit in asked if unit.name in found]


class _Matched:
    """Notes which labs the items that pytest keeps are of."""

    def __init__(self):
        self.files: set[Path] = set()

    def pytest_collection_finish(self, session):
        """Every lab.py with an item."""
        self.files = {item.path for item in session.items}
