"""Measure how long a student waits: from a command or a save to what the terminal shows of a verdict.

`make grade` and `make watch` run in a pseudo-terminal (Python's pty), on right solutions and on ones with a
mistake. Each is tried with a prepared process (see `grader.system.standby`) and, in the same run, without.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from grader.course import catalog
from grader.results.base import Model
from grader.results.machine import Machine, machine, now
from grader.system.standby import SWITCH

RECORD = catalog.ROOT / "solutions" / "results" / "student-loop.json"
# One mistake of each lab, as an edit of its solution: y is subtracted, the old sum is not rescaled, and every
# step of K has the mask of the first.
MISTAKES = {
    1: ("x + y, mask", "x - y, mask"),
    2: ("d = d * tl.exp(m - shift) +", "d = d +"),
    3: ("mask=mask_m & (offs_k[None, :] < K - k)", "mask=mask_m & (offs_k[None, :] < K)"),
}
LINES, COLUMNS = 40, 100  # of the terminal
LIMIT_S = 180.0  # for what one step shows
REDRAWN_S = 0.5  # in which the watcher's screen is drawn anew
REST_S = 2.0  # in which a process is prepared for the next command
_STYLE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
CASE_DONE = rb"(?<!\d)[1-9]\d*/\d+  \d+ s"  # what the watcher shows beside its bar
FACT, CAUSE = rb"first wrong|    what ", rb"likely cause"
WAITS, END = rb"waiting for a save", rb""


class Step(Model):
    """What was waited for, and the seconds that it took, of each repetition."""

    lab: int
    name: str
    prepared: bool  # whether a process was prepared before
    seconds: tuple[float, ...]


class StudentLoop(Model):
    """A record of `student-loop`."""

    date: str
    machine: Machine
    steps: tuple[Step, ...]


class NotShownError(RuntimeError):
    """The terminal did not show in time what was waited for."""


class Terminal:
    """A command in a pseudo-terminal; `wait_for` returns the seconds since the start or the last `mark`."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]):
        self._shown, self._ended = b"", False
        self._began = time.monotonic()
        self._process, self._screen = pty.fork()
        if self._process == 0:
            os.chdir(catalog.ROOT)
            os.execvpe(command[0], command, environment)
        fcntl.ioctl(self._screen, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))

    def rest(self, seconds: float) -> None:
        """Read for so long what is shown, forget it, and count the seconds from then on."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0.0 and self._read(left):
            pass
        self._shown, self._began = b"", time.monotonic()

    def wait_for(self, pattern: bytes) -> float:
        """Return when the terminal showed a pattern; END is the end of the command. Raises NotShownError."""
        while pattern is END or not re.search(pattern, _STYLE.sub(b"", self._shown)):
            if not self._read(self._began + LIMIT_S - time.monotonic()):
                if pattern is END and self._ended:
                    break
                raise NotShownError(f"{pattern!r} was not shown: {self._last_shown}")
        return time.monotonic() - self._began

    def _read(self, limit_s: float) -> bool:
        """Read what is shown next; return whether there was something before the limit or the end."""
        if not select.select([self._screen], [], [], max(0.0, limit_s))[0]:
            return False
        try:
            data = os.read(self._screen, 1 << 16)
        except OSError:
            data = b""
        self._ended = not data
        self._shown += data
        return bool(data)

    @property
    def _last_shown(self) -> str:
        return _STYLE.sub(b"", self._shown)[-1000:].decode(errors="replace")

    def close(self) -> None:
        """End the command as Ctrl-C does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process, signal.SIGINT)
        while self._read(LIMIT_S):
            pass
        os.close(self._screen)
        os.waitpid(self._process, 0)


def measure(repetitions: int) -> Iterator[Step]:
    """Yield each step of each lab, with and without a prepared process."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for lab, (old, new) in MISTAKES.items():
            entry = next(one for one in catalog.find() if one.number == lab)
            place = tree / entry.folder.name
            shutil.copytree(catalog.ROOT / "solutions" / entry.folder.name, place)
            file = entry.submission(tree, entry.lab.exercises[0])
            right = file.read_text()
            wrong = right.replace(old, new)
            arguments = [f"LAB={lab}", f"FROM={tree}"]
            for prepared in (False, True):
                found: dict[str, list[float]] = {}
                for _ in range(repetitions):
                    for name, seconds in _once(arguments, prepared, file, right, wrong):
                        found.setdefault(name, []).append(round(seconds, 2))
                for name, each in found.items():
                    yield Step(lab=lab, name=name, prepared=prepared, seconds=tuple(each))


def _once(
    arguments: Sequence[str], prepared: bool, file: Path, right: str, wrong: str
) -> Iterator[tuple[str, float]]:
    """Yield what one right and one wrong file take; a watcher always has a prepared process."""
    environment = {**os.environ, "TERM": "xterm", SWITCH: str(int(prepared))}
    for name, text in (("right", right), ("wrong", wrong)):
        file.write_text(text)
        if prepared:
            _graded(arguments, environment)  # leaves a prepared process behind
            time.sleep(REST_S)
        terminal = Terminal(["make", "grade", *arguments], environment)
        if name == "wrong":
            yield "grade, wrong: first fact", terminal.wait_for(FACT)
            yield "grade, wrong: cause", terminal.wait_for(CAUSE)
        yield f"grade, {name}: end", terminal.wait_for(END)
        terminal.close()
    if not prepared:
        return
    file.write_text(right)
    terminal = Terminal(["make", "watch", *arguments], environment)
    try:
        terminal.wait_for(WAITS)
        for name, text, first, pattern in (
            ("wrong", wrong, "first fact", FACT),
            ("right", right, "first case", CASE_DONE),
        ):
            terminal.rest(REST_S)
            file.write_text(text)
            yield f"watch, save of a {name} file: {first}", terminal.wait_for(pattern)
            terminal.rest(REDRAWN_S)
            terminal.wait_for(WAITS)
    finally:
        terminal.close()


def _graded(arguments: Sequence[str], environment: dict[str, str]) -> None:
    terminal = Terminal(["make", "grade", *arguments], environment)
    terminal.wait_for(END)
    terminal.close()


def recorded(steps: Sequence[Step]) -> StudentLoop:
    """Return the record of these steps on this machine."""
    return StudentLoop(date=now(), machine=machine(None, "not looked for"), steps=tuple(steps))
