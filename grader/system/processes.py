"""Start programs: run a tool to its end, or a child process in parallel."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from grader.system.text import one_line

PIPE, DEVNULL, STDOUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT
NICENESS = 10  # of what compiles in the background: the judge, and the workers whose cases run, go first
SHOWN = 80  # characters of a command in a message
BLOCK = 1 << 16


class LimitError(RuntimeError):
    """A program did not end within its limit; the message ends with the last line that it wrote."""


@dataclass(frozen=True)
class Completed:
    """The result of a program: its exit code, negative for a signal, and its output."""

    code: int
    output: bytes
    errors: bytes = b""  # empty if they were merged into the output

    @property
    def text(self) -> str:
        """The output as text; invalid UTF-8 is replaced."""
        return _text(self.output)

    @property
    def said(self) -> str:
        """Output, then errors, as text."""
        return _text(self.output + self.errors)

    @property
    def complaint(self) -> str:
        """The errors as text, without surrounding whitespace."""
        return _text(self.errors).strip()


class Child:
    """A program that runs in parallel to this process; OSError if it cannot start.

    With `own_session`, it gets neither Ctrl-C nor another signal to the process group of this process.
    `prepare` is called in the new process before the program starts; it needs a process without threads.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int = DEVNULL,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
        pass_fds: Sequence[int] = (),
        own_session: bool = False,
        prepare: Callable[[], None] | None = None,
    ):
        self._own_session, self._name = own_session, _name(command)
        try:
            self._process = subprocess.Popen(
                command, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=pass_fds,
                start_new_session=own_session, preexec_fn=prepare,  # noqa: PLW1509 - as the docstring says
            )  # fmt: skip
        except subprocess.SubprocessError as error:  # raised by `prepare`
            raise OSError(f"{self._name} did not start: {error}") from None
        self.pid = self._process.pid

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def stdout(self) -> IO[bytes]:
        """The pipe from which its output is read; ValueError if the output does not go to a pipe."""
        if self._process.stdout is None:
            raise ValueError("the output does not go to a pipe")
        return self._process.stdout

    def wait(self, limit_s: float | None = None) -> int | None:
        """Return the exit code, negative for a signal; None if it still runs after `limit_s` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(limit_s)
        return None

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def end(self) -> None:
        """Kill it and all its descendants if it still runs, and close its pipes."""
        if self._process.poll() is None:
            found = self._descendants()  # before it is killed, because they then get another parent
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL) if self._own_session else self._process.kill()
            for one in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(one, signal.SIGKILL)
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe:
                pipe.close()

    def _descendants(self) -> list[int]:
        # Imported here, because every worker imports this module, and few processes end a child.
        from grader.system.process_tree import descendants

        with contextlib.suppress(OSError):  # a confined process sees no other processes
            return [one.pid for one in descendants(self.pid)]
        return []

    def communicate(self, given: bytes | None, limit_s: float | None) -> Completed:
        """Return its result when it has ended; LimitError after `limit_s` seconds."""
        try:
            output, errors = self._process.communicate(given, timeout=limit_s)
        except subprocess.TimeoutExpired as late:
            last = _text((late.stderr or b"") + (late.output or b"")).strip().splitlines()[-1:]
            words = f"{self._name} did not end within {limit_s:.0f} s"
            raise LimitError(": ".join([words, *map(one_line, last)])) from None
        return Completed(self._process.returncode, output, errors or b"")


def run_tool(
    command: Sequence[str | Path],
    limit_s: float | None,
    *,
    given: bytes | None = None,
    merged: bool = False,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    own_session: bool = False,
    prepare: Callable[[], None] | None = None,
) -> Completed:
    """Run a program to its end with `given` as its input, and return its result.

    `merged` writes stderr into the output. `cwd`, `env`, `own_session` and `prepare` are as for Child. Raises
    OSError if it cannot start, LimitError if it does not end within `limit_s` seconds. The program and its
    descendants are then killed, also if this process is interrupted.
    """
    stdin, stderr = PIPE if given is not None else DEVNULL, STDOUT if merged else PIPE
    with Child(
        command, cwd=cwd, env=env, stdin=stdin, stdout=PIPE, stderr=stderr,
        own_session=own_session, prepare=prepare,
    ) as child:  # fmt: skip
        return child.communicate(given, limit_s)


class Messages:
    """JSON objects that a process writes to a pipe, one for each line; other lines are skipped."""

    def __init__(self, descriptor: int):
        self._descriptor, self._rest = descriptor, b""
        self.ended = False  # the writing end of the pipe is closed
        os.set_blocking(descriptor, False)

    def new(self, wait_s: float = 0.0) -> Iterator[dict[str, object]]:
        """Yield the messages since the last call; wait at most `wait_s` seconds for the first."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        poll.poll(1000 * max(0.0, wait_s))
        while True:
            try:
                data = os.read(self._descriptor, BLOCK)
            except BlockingIOError:
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                if line.startswith(b'{"'):
                    yield json.loads(line)
            if not data:
                self.ended = True
                return


def _name(command: Sequence[str | Path]) -> str:
    """Return the name of a command for messages: its program and first arguments."""
    return one_line(" ".join([Path(command[0]).name, *map(str, command[1:4])]))[:SHOWN].strip()


def _text(data: bytes) -> str:
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors="replace").read()
