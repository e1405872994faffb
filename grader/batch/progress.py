"""What an instructor sees of a class while it is graded: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import TimeRemainingColumn

from grader.progress import Follower

EVERY_S = 60.0  # between two lines, where there is no terminal


class Progress:
    """Follows the gradings of one command."""

    def __init__(self, console: Console, total: int, words: str):
        self._total, self._words, self._done = total, words, 0
        self._began = self._said = time.monotonic()
        self._follower = Follower(console, TimeRemainingColumn())
        self._shown: set[str] = set()

    def __enter__(self) -> Progress:
        self._follower.begin(self._total)
        if self._follower.console.is_terminal:
            self._follower.running(self._words, "")
        else:
            self.note(f"{self._words}: {self._total} to do")
        return self

    def __exit__(self, *_) -> None:
        self._follower.end()

    def done(self, name: str) -> None:
        """One grading has ended."""
        self._done += 1
        self._follower.done()
        if self._follower.console.is_terminal:
            self._follower.running(self._words, name)
        elif self._done == self._total or time.monotonic() - self._said > EVERY_S:
            self._said = time.monotonic()
            self.note(f"{self._done} of {self._total}, {self._left()}")

    def look(self, notes: list[str]) -> None:
        """Show what workers say, each once as long as it holds."""
        for words in notes:
            if words not in self._shown:
                self.note(words)
        self._shown = set(notes)

    def note(self, words: str) -> None:
        """A line that stays."""
        self._follower.note(words)

    def _left(self) -> str:
        seconds = (time.monotonic() - self._began) / self._done * (self._total - self._done)
        return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
