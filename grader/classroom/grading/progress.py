"""Show the progress of grading a class: a bar on a terminal, otherwise a line per minute."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import TimeRemainingColumn

from grader.grading.progress import Follower

EVERY_S = 60.0  # between two lines without a terminal


class Progress:
    """Progress display of one command; a context manager."""

    def __init__(self, console: Console, total: int, words: str):
        self._total, self._words, self._done = total, words, 0
        self._began = self._printed = time.monotonic()
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
        """Count one finished grading."""
        self._done += 1
        self._follower.done()
        if self._follower.console.is_terminal:
            self._follower.running(self._words, name)
        elif self._done == self._total or time.monotonic() - self._printed > EVERY_S:
            self._printed = time.monotonic()
            self.note(f"{self._done} of {self._total}, {self._left()}")

    def look(self, notes: list[str]) -> None:
        """Show notes of workers; a note that stays the same is shown once."""
        for words in notes:
            if words not in self._shown:
                self.note(words)
        self._shown = set(notes)

    def note(self, words: str) -> None:
        """Print a line that stays on the screen."""
        self._follower.note(words)

    def _left(self) -> str:
        seconds = (time.monotonic() - self._began) / self._done * (self._total - self._done)
        return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
