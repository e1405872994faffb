"""Start worker processes, exchange frames with them under a deadline, read their output, end them."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from grader.course.spec import Reason, Verdict
from grader.sandbox import limits
from grader.system import process_tree
from grader.system.text import printable
from grader.worker.fork_server_client import ForkServer, births, workers
from grader.worker.protocol import (
    HEADER,
    JsonObject,
    Kind,
    ProtocolError,
    pack,
    unpack_header,
    unpack_payload,
)

MAX_OUTPUT = 64 * 1024  # bytes kept of a worker's output; the rest is read and dropped
SHORT_S = 0.05
STOP_LIMIT_S = 0.5  # for a process to stop; the kernel stops one within microseconds

STACKS_BEGIN = b"Timeout ("  # what faulthandler.dump_traceback_later writes first
LOOK_EVERY_S = 0.25  # between checks of a worker's resources


class Exchanger(Protocol):
    """What the judge does when a worker asks for the graded inputs, and for the decoys."""

    def open(self) -> None:
        """Write the graded inputs; ProtocolError out of turn."""

    def shut(self) -> None:
        """Write the decoys; ProtocolError out of turn."""


class WorkerGoneError(Exception):
    """The worker ended, or was killed, before it answered; has the cause, the verdict and its reason."""

    def __init__(self, why: str, verdict: Verdict = Verdict.CRASHED, reason: Reason = Reason.NONE):
        super().__init__(why)
        self.why, self.verdict, self.reason = why, verdict, reason


class Worker:
    """One confined process and the channel to it. Whatever is not a valid answer raises WorkerGoneError."""

    def __init__(
        self,
        parent: ForkServer,
        memory: int | None,
        scratch: tuple[Path, ...] = (),
        operators: bool = False,
        pages: tuple[int, ...] = (),
        look_every_s: float = LOOK_EVERY_S,
    ):
        self._memory, self._scratch, self._look_every_s = memory, scratch, look_every_s
        self._look_at = time.monotonic() + look_every_s
        self._channel, theirs = socket.socketpair()
        out, out_in = os.pipe()
        err, err_in = os.pipe()
        self._pipes = {out: bytearray(), err: bytearray()}
        self._err = err
        try:
            # The number of descriptors is fixed, so the socket stands for those that there are not.
            lent = [theirs.fileno() if memory is None else memory, *(pages or 2 * (theirs.fileno(),))]
            self.pid = parent.fork([theirs.fileno(), out_in, err_in, *lent], operators)
        except BaseException:
            self._channel.close()
            os.close(out)
            os.close(err)
            raise
        finally:
            theirs.close()
            os.close(out_in)
            os.close(err_in)
        self._channel.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._channel, selectors.EVENT_READ)
        for pipe in self._pipes:
            os.set_blocking(pipe, False)
            self._selector.register(pipe, selectors.EVENT_READ)
        self._received = bytearray()
        self._block = -1
        self._rested: str | None = None  # what the kernel counted of it when it had stopped, while it is held
        self.alive = True

    def ask(
        self,
        kind: Kind,
        payload: JsonObject,
        limit_s: float,
        exchanger: Exchanger | None = None,
        late: tuple[float, Callable[[], None]] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> tuple[Kind, JsonObject]:
        """Send a frame and wait for its answer, at most `limit_s` seconds; it may use `exchanger` meanwhile.

        `late` is a number of seconds, and what is called once if the answer has not come by then. `meanwhile`
        is called as soon as the frame is sent; its time does not count. Raises WorkerGoneError after the
        limit, on an invalid answer, and if the worker ends.
        """
        self.send(kind, payload, limit_s)
        if meanwhile:
            meanwhile()
        return self.answer(limit_s, exchanger, late)

    def send(self, kind: Kind, payload: JsonObject, limit_s: float) -> None:
        """Send a frame, for which `answer` waits; WorkerGoneError if the worker has ended."""
        if not self.alive:
            raise WorkerGoneError("the file's process has ended")
        self._block += 1
        try:
            self._channel.setblocking(True)
            self._channel.settimeout(limit_s)
            self._channel.sendall(pack(kind, self._block, payload))
            self._channel.setblocking(False)
        except OSError:
            raise WorkerGoneError(self._how_it_ended()) from None

    def answer(
        self,
        limit_s: float,
        exchanger: Exchanger | None = None,
        late: tuple[float, Callable[[], None]] | None = None,
    ) -> tuple[Kind, JsonObject]:
        """Wait for the answer to the frame that was sent last, as `ask` does; the time counts from now."""
        if not self.alive:
            raise WorkerGoneError("the file's process has ended")
        try:
            began = time.monotonic()
            answer = self._answer(began + limit_s, limit_s, exchanger, late)
            ended = time.monotonic()
            if ended - began > SHORT_S and ended > self._look_at:  # long enough to fill a disk
                self._within_limits()
            return answer
        except ProtocolError as error:
            self.end()
            words = f"the file's process sent data that the protocol does not allow ({error})"
            raise WorkerGoneError(words, reason=Reason.PROTOCOL) from None
        except OSError:
            raise WorkerGoneError(self._how_it_ended()) from None

    def _answer(
        self,
        deadline: float,
        limit_s: float,
        exchanger: Exchanger | None,
        late: tuple[float, Callable[[], None]] | None,
    ) -> tuple[Kind, JsonObject]:
        look = max(self._look_at, time.monotonic() + LOOK_EVERY_S)
        late_at = time.monotonic() + late[0] if late else math.inf
        while True:
            frame = self._parse(exchanger)
            if frame and frame[0] in (Kind.OPEN, Kind.SHUT) and exchanger:
                if frame[0] is Kind.OPEN:
                    exchanger.open()
                else:
                    exchanger.shut()
                self._channel.sendall(pack(Kind.TURNED, self._block, {}))
            elif frame:
                for pipe in self._pipes:
                    self._drain(pipe)
                return frame
            if late and time.monotonic() >= late_at:  # and what was received is no answer
                late_at = math.inf
                late[1]()
            left = deadline - time.monotonic()
            until = min(left, LOOK_EVERY_S, late_at - time.monotonic())
            events = self._selector.select(max(0.0, until))
            if left <= 0.0:
                self.end()
                raise WorkerGoneError(f"stopped at the time limit of {limit_s:g} s", Verdict.TIMEOUT)
            if time.monotonic() > look:
                self._within_limits()
                look = self._look_at
            for key, _ in events:
                if key.fileobj is not self._channel:
                    self._drain(key.fd)
                    continue
                data = self._channel.recv(HEADER.size + 2 * 65536)
                if not data:
                    raise WorkerGoneError(self._how_it_ended())
                self._received += data

    def _within_limits(self) -> None:
        """Kill a worker that exceeds its memory, processes or files, and raise WorkerGoneError."""
        self._look_at = time.monotonic() + self._look_every_s
        found = limits.too_much_written(self._scratch)
        found = found or limits.beyond_limits(self.pid, workers, self._memory)
        if found:
            self.end()
            raise WorkerGoneError(found.words, found.verdict, found.reason)

    def _parse(self, exchanger: Exchanger | None) -> tuple[Kind, JsonObject] | None:
        if len(self._received) < HEADER.size:
            return None
        kind, block, length = unpack_header(bytes(self._received[: HEADER.size]))
        asked = (Kind.OPEN, Kind.SHUT) if exchanger else ()
        if kind not in (Kind.DONE, Kind.FAILED, *asked) or block != self._block:
            raise ProtocolError("an answer without a request")
        if len(self._received) < HEADER.size + length:
            return None
        payload = unpack_payload(bytes(self._received[HEADER.size : HEADER.size + length]))
        if len(self._received) > HEADER.size + length:
            raise ProtocolError("more than one answer")
        self._received.clear()
        return kind, payload

    def _drain(self, pipe: int) -> None:
        try:
            data = os.read(pipe, 65536)
        except BlockingIOError:
            return
        if not data and pipe in self._selector.get_map():
            self._selector.unregister(pipe)
        kept = self._pipes[pipe]
        kept += data[: MAX_OUTPUT - len(kept)]

    @property
    def printed(self) -> str:
        """Return the worker's output without control characters; it is shown, never parsed."""
        return printable("".join(bytes(kept).decode(errors="replace") for kept in self._pipes.values()))

    def _how_it_ended(self) -> str:
        """Reap a worker that closed its channel; say how it ended.

        A worker that still runs has 0.2 s to end by itself, and is then killed.
        """
        words = "the file's process closed its connection to the grader"
        for _ in range(20):
            try:
                done, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                break
            if done:
                words = _in_words(status)
                break
            time.sleep(0.01)
        self.end()
        return words

    def end(self) -> None:
        """Kill and reap the worker and all processes that it started; does nothing if it has ended."""
        if not self.alive:
            return
        self.alive = False
        self._kill()
        process_tree.wait_for(self.pid)
        with births:
            workers.discard(self.pid)
            process_tree.end_orphans(workers)
        for pipe in self._pipes:
            if pipe in self._selector.get_map():
                self._drain(pipe)
            os.close(pipe)
        self._selector.close()
        self._channel.close()

    def kill(self) -> None:
        """Kill the worker's processes; `end` then waits for them, in the thread that waits for an answer."""
        if self.alive:
            self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:  # a new process may not lead a group of its own yet
                os.kill(self.pid, signal.SIGKILL)

    def hold(self, still: bool) -> None:
        """Stop the worker's processes, or continue them; returns once the worker itself has stopped."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGSTOP if still else signal.SIGCONT)
        if not still:
            self._rested = None
        if not still or self._rested is not None:
            return
        deadline = time.monotonic() + STOP_LIMIT_S
        while not process_tree.is_stopped(self.pid) and time.monotonic() < deadline:
            pass
        # The last thread counts as stopped a moment before it leaves its core.
        before, now = None, process_tree.ran(self.pid)
        while before != now and time.monotonic() < deadline:
            before, now = now, process_tree.ran(self.pid)
        self._rested = now

    @property
    def has_run(self) -> bool:
        """Whether the worker has run although it is held: something other than the judge continued it."""
        return self._rested is not None and process_tree.ran(self.pid) != self._rested

    def stacks(self) -> str:
        """Take the stacks of the worker's threads from its output, where it prints them while it waits."""
        self._drain(self._err)
        printed = self._pipes[self._err]
        at = printed.rfind(STACKS_BEGIN)
        if at < 0:
            return ""
        told = bytes(printed[at:])
        del printed[at:]
        return printable(told.decode(errors="replace"))


def _in_words(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        named = {one.value: f" ({one.name})" for one in signal.Signals}  # real-time signals have no name
        return f"the file's process was killed by signal {number}{named.get(number, '')}"
    return f"the file's process ended with exit code {os.WEXITSTATUS(status)} before it returned a result"
