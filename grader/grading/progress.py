"""Show the progress of a run, and the pytest plugin that does so for a graded run."""

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
    """A progress bar on a terminal; if output is piped, a line whenever the current step changes.

    Without `announces` nothing is printed there.
    """

    def __init__(self, console: Console, *columns: ProgressColumn, announces: bool = True):
        self.console, self._announces = console, announces
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
        """Start; `items` is the number of items."""
        if self.console.is_terminal:
            self._task = self._bar.add_task("starting", total=items)
            self._bar.start()

    def running(self, words: str, item: str) -> None:
        """Show what is running."""
        if self._task is not None:
            self._bar.update(self._task, description=f"{words}  {item}")
        elif self._announces and words != self._announced:
            self._announced = words
            self.note(words)

    def note(self, words: str) -> None:
        """Print a line that stays on the terminal."""
        self.console.print(f"  {words}", highlight=False, markup=False)

    def found(self, words: str) -> None:
        """Print on a terminal what the report will say, for whoever waits for it."""
        if self._task is not None:
            self.note(words)

    def done(self) -> None:
        """Count one item as done."""
        if self._task is not None:
            self._bar.advance(self._task)

    def end(self) -> None:
        """Remove the bar from the terminal."""
        if self._task is not None:
            self._bar.stop()


class Teller:
    """Write progress to another process: a line of JSON with the `RunState` for each event."""

    def __init__(self, descriptor: int):
        self._lines = os.fdopen(descriptor, "w", buffering=1)
        self._state = RunState()

    def begin(self, items: int) -> None:
        """Send the number of items."""
        self._tell(RunState(items=items))

    def running(self, words: str, _item: str) -> None:
        """Send what is running."""
        self._tell(self._state.model_copy(update={"words": words}))

    def found(self, words: str) -> None:
        """Send what the report will say."""
        self._tell(self._state.model_copy(update={"found": (*self._state.found, words)}))

    def done(self) -> None:
        """Send that one item is done."""
        self._tell(self._state.model_copy(update={"done": self._state.done + 1}))

    def end(self) -> None:
        """Close the channel."""
        self._lines.close()

    def _tell(self, state: RunState) -> None:
        self._state = state
        with contextlib.suppress(OSError):  # the reader is gone, but the run must still finish
            self._lines.write(state.model_dump_json() + "\n")


class ProgressPlugin:
    """A pytest plugin that shows the progress of one run."""

    def __init__(self, follower: Follower | Teller):
        self._follower = follower
        self._told: set[str] = set()
        self._failed: set[str] = set()  # exercises of which a failure was shown
        self.broken: list[str] = []

    def pytest_collectreport(self, report):
        """Record a lab.py that cannot be loaded, for an error message."""
        if report.failed:
            self.broken.append(f"{report.nodeid}: {report.longreprtext.strip().splitlines()[-1]}")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session):
        """Start when the number of items is known."""
        self._follower.begin(len(session.items))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item):
        """Show what is running."""
        asked: Item = item.asked
        self._follower.running(f"{_name(asked)}  {asked.kind}", asked.name)

    @pytest.hookimpl(optionalhook=True)
    def pytest_grader_failed(self, item, facts):
        """Show the facts of an exercise's first failure; its cause comes when all cases were looked at."""
        name = _name(item)
        if name not in self._failed:
            self._failed.add(name)
            self._follower.found("\n  ".join([f"{name}  {facts[0]}", *facts[1:]]))

    def pytest_runtest_logfinish(self):
        """Count one item as done."""
        self._follower.done()

    @pytest.hookimpl(optionalhook=True)
    def pytest_grader_explaining(self, exercise):
        """Show which exercise is explained."""
        self._follower.running(f"looking for what is wrong in {exercise}", "")

    @pytest.hookimpl(optionalhook=True)
    def pytest_grader_explained(self, exercise, causes):
        """Show what was found while other exercises are looked at."""
        for words in (f"{exercise}: {cause}" for cause in causes):
            if words not in self._told:
                self._told.add(words)
                self._follower.found(words)

    def pytest_sessionfinish(self):
        """Remove the progress bar before the report."""
        self._follower.end()


def _name(item: Item) -> str:
    """Return lab and exercise of an item, as they are shown."""
    return f"{lab_word(item.entry.folder.name, item.entry.number)}  {item.exercise.name}"
