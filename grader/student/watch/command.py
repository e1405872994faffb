"""The loop of `make watch`: poll the files, start and stop runs of `grade`, and collect their results."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.text import Text

from grader.course.catalog import Entry
from grader.course.spec import Document, Verdict
from grader.course.submission import Submission
from grader.grading.options import RunOptions
from grader.screen.file_check import check
from grader.student.next_hint import last_results
from grader.student.watch.board import Board, failure_lines, total_words
from grader.student.watch.child import Child
from grader.student.watch.scores import Scores, Watched

TICK_S = 0.1
REDRAW_S = 0.25


@dataclass(frozen=True)
class Going:
    """A run in progress: its process, the contents of the files at its start, and when they were saved."""

    child: Child
    graded: tuple[Watched, ...]
    held: dict[tuple[str, str], tuple[str, ...]]
    saved: str
    reports: tuple[int, int]


def watch(options: RunOptions, entries: Sequence[Entry], console: Console) -> None:
    """Watch and grade with `options` until Ctrl-C; at the end, stop every process that was started."""
    source = Path(options.source)
    watched = [Watched(entry, exercise, source) for entry in entries for exercise in entry.lab.exercises]
    files = ", ".join(dict.fromkeys(one.file.name for one in watched))
    scores = Scores(watched)
    with Board(console, f"watching {files}; stop with Ctrl-C") as board, _asked_to_end() as to_end:
        loop = Loop(options, scores, board)
        try:
            while not to_end:
                loop.turn(time.monotonic())
                time.sleep(TICK_S)
        finally:
            loop.end()
    console.print(Text(f"last {total_words(scores)}", style="bold"), soft_wrap=True)


@contextlib.contextmanager
def _asked_to_end() -> Iterator[list[int]]:
    """Yield a list that Ctrl-C, SIGTERM or a closed terminal adds a signal's number to.

    Nothing is raised: an exception while a run starts would leave its process without an owner.
    """
    noted: list[int] = []
    ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {one: signal.signal(one, lambda number, _: noted.append(number)) for one in ends}
    try:
        yield noted
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


class Loop:
    """The state of the watcher; `turn` polls the files and the run in progress once."""

    def __init__(self, options: RunOptions, scores: Scores, board: Board):
        self._options, self._scores, self._board = options, scores, board
        self._going: Going | None = None
        self._next: Child | None = None  # which has imported what the next run needs
        self._state = Text("starting")
        self._troubles: dict[tuple[str, str], str] = {}  # what keeps an exercise from being graded
        self._saved = _now()
        self._quiet = True
        self._drawn = 0.0

    def turn(self, now: float) -> None:
        """Poll once, then start, stop or collect a run as needed; `now` is in seconds."""
        quiet = self._scores.look(now)
        if quiet and not self._quiet:
            self._saved = _now()
        self._quiet = quiet
        if self._going:
            self._follow(self._scores.stale())
        if not self._going and quiet:
            if stale := self._scores.stale():
                self._begin(stale)
            elif self._next is None:
                self._next = Child(self._options.tier)
        if now - self._drawn >= REDRAW_S:
            self._drawn = now
            self._show()

    def end(self) -> None:
        """Stop the run in progress, and leave the last state on the screen."""
        if self._going:
            self._going.child.end()
            self._going = None
        if self._next:
            self._next.end()
            self._next = None
        self._state = Text("ended")
        self._show()

    def _show(self) -> None:
        child = self._going.child if self._going else None
        troubles = list(dict.fromkeys(self._troubles.values()))
        self._board.show(self._state, troubles, child, self._scores)

    def _follow(self, stale: Sequence[Watched]) -> None:
        """Stop the run if a file has been saved since; collect its results if it has ended."""
        going = self._going
        if any(going.held.get(one.key) != self._scores.held(one) for one in stale):
            going.child.end()
            self._going = None
            self._say("saved again: the run was stopped", "yellow")
            return
        code = going.child.poll()
        if code is None:
            return
        words = going.child.errors
        going.child.end()
        self._going = None
        for one in going.graded:
            self._scores.tried(one, going.held[one.key])
        results, trouble = last_results(self._options.results)
        if _identity(self._options.results) == going.reports or results is None:
            self._say(f"nothing was graded: {words or trouble or f'exit code {code}'}", "red")
            return
        self._scores.take(results, going.held, going.saved)
        words = f"graded what was saved at {going.saved}; {total_words(self._scores)}; waiting for a save"
        self._say(words, "green")
        for one, score in self._scores.failures():
            if one in going.graded:
                first, *rest = (line.strip() for line, _ in failure_lines(one, score))
                self._board.event("; ".join([first, *rest[:1]]))

    def _begin(self, stale: Sequence[Watched]) -> None:
        """Grade what can be graded; for the rest, show what prevents it."""
        found = {one.key: self._trouble(one) for one in stale}
        self._troubles = {key: words for key, words in {**self._troubles, **found}.items() if words}
        for words in dict.fromkeys(filter(None, found.values())):
            self._state = Text("waiting for a save")
            self._board.event(words)
        for one in stale:
            if found[one.key]:
                self._scores.tried(one, self._scores.held(one))
        ready = [one for one in stale if not found[one.key]]
        if ready:
            contents = {one.key: self._scores.held(one) for one in ready}
            reports = _identity(self._options.results)
            child = self._prepared()
            child.begin(_only(self._options, ready, self._scores.watched))
            self._going = Going(child, tuple(ready), contents, self._saved, reports)
            names = ", ".join(one.exercise.name for one in ready)
            self._say(f"grading what was saved at {self._saved}", "cyan", names)

    def _trouble(self, one: Watched) -> str:
        return next(filter(None, (_trouble(one, path) for path in self._scores.sources(one))), "")

    def _prepared(self) -> Child:
        """Return the process that waits for a run; another one if it has ended."""
        child, self._next = self._next, None
        if child and child.poll() is not None:
            child.end()
            child = None
        return child or Child(self._options.tier)

    def _say(self, words: str, style: str, more: str = "") -> None:
        self._state = Text(words, style=style)
        self._board.event(words + (f": {more}" if more else ""))


def _only(options: RunOptions, ready: Sequence[Watched], watched: Sequence[Watched]) -> RunOptions:
    """Return the same options, limited to these exercises."""
    keywords = [f"({options.keyword})"] if options.keyword else []
    if len(ready) < len(watched):
        keywords.append("(" + " or ".join(f"{one.exercise.name}/" for one in ready) + ")")
    return replace(options, keyword=" and ".join(keywords))


def _trouble(one: Watched, path: Path) -> str:
    """Return why a run on this file cannot succeed yet; empty if it can."""
    if isinstance(one.exercise, Document):
        return ""
    if not path.exists():
        return f"{path.name} is missing: waiting for it"
    if path == one.entry.lab_file or (path != one.file and path.suffix != ".py"):
        return ""
    outcome = check(Submission.read(path), one.exercise)
    if outcome is None or outcome.verdict is not Verdict.COMPILE_ERROR:
        return ""
    line = f":{outcome.frames[0].line}  {outcome.frames[0].code}" if outcome.frames else ""
    return f"{outcome.where}  at {path.name}{line}"


def _identity(results: Path) -> tuple[int, int]:
    """Return inode and time of results.json, which change when a run replaces the file."""
    try:
        facts = (results / "results.json").stat()
    except OSError:
        return 0, 0
    return facts.st_ino, facts.st_mtime_ns


def _now() -> str:
    return datetime.now().strftime("%H:%M:%S")
