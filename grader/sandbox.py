"""Start workers, speak with them under a deadline, drain what they print, kill and reap them."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from grader.outcome import printable
from grader.protocol import HEADER, Kind, ProtocolError, pack, unpack_header, unpack_payload

PR_SET_CHILD_SUBREAPER = 36
MAX_OUTPUT = 64 * 1024  # bytes kept of what a worker prints; the rest is read and dropped
START_LIMIT_S = 120.0  # imports on a cold disk
KEPT_ENVIRONMENT = (
    "PATH",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CC",
    "LANG",
    "LC_ALL",
    "TRITON_PRINT_AUTOTUNING",
    "TRITON_LIBCUDA_PATH",
)


class WorkerGoneError(Exception):
    """The worker ended, or was ended, before it answered: why, and what ended it."""

    def __init__(self, reason: str, timeout: bool = False, protocol: bool = False):
        super().__init__(reason)
        self.reason, self.timeout, self.protocol = reason, timeout, protocol


class WarmParent:
    """A process that has imported torch and triton and forks workers on request."""

    def __init__(self, interpreted: bool, folder: Path):
        # Workers orphaned by their double fork become children of this process.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        ours, theirs = socket.socketpair()
        environment = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
        environment |= {"HOME": str(folder), "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
        if interpreted:
            environment["TRITON_INTERPRET"] = "1"
        # Isolated mode takes neither PYTHONPATH nor the working folder, so the path travels in the command.
        here = str(Path(__file__).resolve().parents[1])
        paths = json.dumps([here, *(os.path.abspath(path) for path in sys.path if path)])
        command = (
            f"import json, sys; sys.path[:] = json.loads({paths!r}); "
            f"import grader.warm; grader.warm.main({theirs.fileno()})"
        )
        self._log = open(folder / f"warm-{'interpreted' if interpreted else 'compiled'}.log", "wb")  # noqa: SIM115 - lives with self
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-B", "-c", command],
            pass_fds=[theirs.fileno()],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        theirs.close()
        self._socket = ours
        self._ready = False
        self._turn = threading.Lock()  # the compiling thread forks workers, too

    def fork(self, fds: list[int]) -> int:
        """A new worker with these descriptors; returns its pid. RuntimeError where the parent has died."""
        with self._turn:
            self._socket.settimeout(START_LIMIT_S)
            try:
                if not self._ready:
                    self._ready = self._socket.recv(1) == b"R"
                socket.send_fds(self._socket, [b"F"], fds)
                return struct.unpack("<i", self._socket.recv(4))[0]
            except (OSError, struct.error):
                self._log.flush()
                lines = Path(self._log.name).read_text(errors="replace").strip().splitlines()
                said = " | ".join(lines[-3:]) or "no output"
                raise RuntimeError(f"the warm parent did not start a worker: {said}") from None

    def close(self) -> None:
        """End the process; running workers are not touched."""
        self._socket.close()
        self._process.terminate()
        self._process.wait()
        self._log.close()


class Worker:
    """One confined process and the channel to it. Every failure to answer well ends in WorkerGoneError."""

    def __init__(self, parent: WarmParent, memory: int | None):
        self._channel, theirs = socket.socketpair()
        out, out_in = os.pipe()
        err, err_in = os.pipe()
        self._pipes = {out: bytearray(), err: bytearray()}
        try:
            self.pid = parent.fork(
                [theirs.fileno(), out_in, err_in, theirs.fileno() if memory is None else memory]
            )
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
        self._block = 0
        self.alive = True

    def ask(self, kind: Kind, payload: Mapping, limit_s: float, spin: bool = False) -> tuple[Kind, dict]:
        """Send a frame, wait for its answer; WorkerGoneError after `limit_s`, on a bad frame, at its end."""
        if not self.alive:
            raise WorkerGoneError("the worker has ended")
        self._block += 1
        try:
            self._channel.setblocking(True)
            self._channel.settimeout(limit_s)
            self._channel.sendall(pack(kind, self._block, dict(payload)))
            self._channel.setblocking(False)
            return self._answer(time.monotonic() + limit_s, limit_s, spin)
        except ProtocolError as error:
            self.end()
            words = f"it sent what the protocol does not allow ({error})"
            raise WorkerGoneError(words, protocol=True) from None
        except OSError:
            raise WorkerGoneError(self._how_it_ended()) from None

    def _answer(self, deadline: float, limit_s: float, spin: bool) -> tuple[Kind, dict]:
        while True:
            frame = self._parse()
            if frame:
                for pipe in self._pipes:
                    self._drain(pipe)
                return frame
            left = deadline - time.monotonic()
            # Asleep, this process would be woken up some 50 us late, and no two times the same.
            events = self._selector.select(0.0 if spin else max(0.0, left))
            if not events and spin and left > 0.0:
                continue
            if not events:
                self.end()
                raise WorkerGoneError(f"no answer within {limit_s:g} s", timeout=True)
            for key, _ in events:
                if key.fileobj is not self._channel:
                    self._drain(key.fileobj)
                    continue
                data = self._channel.recv(HEADER.size + 2 * 65536)
                if not data:
                    raise WorkerGoneError(self._how_it_ended())
                self._received += data

    def _parse(self) -> tuple[Kind, dict] | None:
        if len(self._received) < HEADER.size:
            return None
        kind, block, length = unpack_header(bytes(self._received[: HEADER.size]))
        if kind not in (Kind.DONE, Kind.FAILED) or block != self._block:
            raise ProtocolError("an answer that nobody asked for")
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
        """What the worker wrote, without control characters; shown, never parsed."""
        return "".join(printable(bytes(kept).decode(errors="replace")) for kept in self._pipes.values())

    def _how_it_ended(self) -> str:
        """Reap a worker that closed its channel; in words. One that lives on is given 0.2 s for its exit
        status.
        """
        words = "it closed the channel"
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
        """Kill the worker's whole session and reap it; harmless where it has ended."""
        if not self.alive:
            return
        self.alive = False
        for act in (lambda: os.killpg(self.pid, signal.SIGKILL), lambda: os.waitpid(self.pid, 0)):
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                act()
        for pipe in self._pipes:
            if pipe in self._selector.get_map():
                self._drain(pipe)
            os.close(pipe)
        self._selector.close()
        self._channel.close()


def _in_words(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"it was ended by signal {number} ({signal.Signals(number).name})"
    return f"it left with exit code {os.WEXITSTATUS(status)} and no answer"
