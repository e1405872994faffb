"""What a run shows while it works, and a pytest plugin that shows it for a graded run."""

from __future__ import annotations

import contextlib
import json
import os

import pytest
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from grader.questions import Question
from grader.spec import lab_word


class Follower:
    """A bar on a terminal; where output is piped, a line whenever what runs is another thing."""

    def __init__(self, console: Console, *columns: ProgressColumn):
        self.console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            *columns,
            console=console,
            transient=True,
        )
        self._task = None
        self._announced = ""

    def begin(self, items: int) -> None:
        """Start once the number of items is known."""
        if self.console.is_terminal:
            self._task = self._bar.add_task("starting", total=items)
            self._bar.start()

    def running(self, words: str, item: str) -> None:
        """Say what runs now."""
        if self._task is not None:
            self._bar.update(self._task, description=f"{words}  {item}")
        elif words != self._announced:
            self._announced = words
            self.note(words)

    def note(self, words: str) -> None:
        """A line that stays."""
        self.console.print(f"  {words}", highlight=False, markup=False)

    def done(self) -> None:
        """One item is done."""
        if self._task is not None:
            self._bar.advance(self._task)

    def end(self) -> None:
        """Leave the terminal clean for what follows."""
        if self._task is not None:
            self._bar.stop()


class Teller:
    """Tells another process, a line of JSON for each event, in the place of a bar."""

    def __init__(self, descriptor: int):
        self._lines = os.fdopen(descriptor, "w", buffering=1)
        self._done = 0

    def begin(self, items: int) -> None:
        """How many items there are."""
        self._tell(items=items, done=0)

    def running(self, words: str, item: str) -> None:
        """What runs now."""
        self._tell(words=words, item=item)

    def done(self) -> None:
        """One item is done."""
        self._done += 1
        self._tell(done=self._done)

    def end(self) -> None:
        """Nothing more to tell."""
        self._lines.close()

    def _tell(self, **what) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more: the run is worth finishing all the same
            self._lines.write(json.dumps(what) + "\n")


class ProgressPlugin:
    """A pytest plugin that follows the items of one run."""

    def __init__(self, follower: Follower | Teller):
        self._follower = follower
        self.broken: list[str] = []

    def pytest_collectreport(self, report):
        """A lab.py that does not load is said, not passed over."""
        if report.failed:
            self.broken.append(f"{report.nodeid}: {report.longreprtext.strip().splitlines()[-1]}")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session):
        """Start once the number of items is known."""
        self._follower.begin(len(session.items))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item):
        """Say what runs now."""
        question: Question = item.question
        lab = lab_word(question.entry.folder.name, question.entry.number)
        words = f"{lab}  {question.exercise.name}  {question.kind}"
        self._follower.running(words, question.name)

    def pytest_runtest_logfinish(self):
        """One item is done."""
        self._follower.done()

    def pytest_sessionfinish(self):
        """Leave the terminal clean for the report."""
        self._follower.end()
