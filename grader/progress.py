"""What a graded run shows while it works: a bar on a terminal, a line an exercise where output is piped."""

from __future__ import annotations

import pytest
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from grader.questions import Question


class ProgressPlugin:
    """A pytest plugin that follows the items of one run."""

    def __init__(self, console: Console):
        self.console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task = None
        self._announced = None
        self.broken: list[str] = []

    def pytest_collectreport(self, report):
        """A lab.py that does not load is said, not passed over."""
        if report.failed:
            self.broken.append(f"{report.nodeid}: {report.longreprtext.strip().splitlines()[-1]}")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session):
        """Start once the number of items is known."""
        if self.console.is_terminal:
            self._task = self._bar.add_task("starting", total=len(session.items))
            self._bar.start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item):
        """Say what runs now."""
        question: Question = item.question
        words = f"lab {question.entry.number}  {question.exercise.name}  {question.kind}"
        if self._task is not None:
            self._bar.update(self._task, description=f"{words}  {question.name}")
        elif self._announced != words:
            self._announced = words
            self.console.print(f"  {words}", highlight=False)

    def pytest_runtest_logfinish(self):
        """One item is done."""
        if self._task is not None:
            self._bar.advance(self._task)

    def pytest_sessionfinish(self):
        """Leave the terminal clean for the report."""
        if self._task is not None:
            self._bar.stop()
