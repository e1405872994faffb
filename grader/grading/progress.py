"""What a run shows while it works, and a pytest plugin that shows it for a graded run."""

from __future__ import annotations

import contextlib
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

from grader.course.items import Item
from grader.course.spec import lab_word
from grader.grading.run_state import RunState


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
    """Tells another process, a line of JSON with the `RunState` for each event, in the place of a bar."""

    def __init__(self, descriptor: int):
        self._lines = os.fdopen(descriptor, "w", buffering=1)
        self._state = RunState()

    def begin(self, items: int) -> None:
        """How many items there are."""
        self._tell(RunState(items=items))

    def running(self, words: str, _item: str) -> None:
        """What runs now."""
        self._tell(self._state.model_copy(update={"words": words}))

    def done(self) -> None:
        """One item is done."""
        self._tell(self._state.model_copy(update={"done": self._state.done + 1}))

    def end(self) -> None:
        """Nothing more to tell."""
        self._lines.close()

    def _tell(self, state: RunState) -> None:
        self._state = state
        with contextlib.suppress(OSError):  # nobody listens any more: the run is worth finishing all the same
            self._lines.write(state.model_dump_json() + "\n")


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
        asked: Item = item.asked
        lab = lab_word(asked.entry.folder.name, asked.entry.number)
        words = f"{lab}  {asked.exercise.name}  {asked.kind}"
        self._follower.running(words, asked.name)

    def pytest_runtest_logfinish(self):
        """One item is done."""
        self._follower.done()

    def pytest_sessionfinish(self):
        """Leave the terminal clean for the report."""
        self._follower.end()
