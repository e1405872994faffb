"""Hand a run over to a process that has prepared itself for it: it has imported all that a run needs.

There is at most one for each user and checkout. It is used once, and whoever used it starts the next. Nothing
of a run is in it before it gets one, so that a run without it has the same results.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grader.system import processes

ROOT = Path(__file__).resolve().parents[2]
SWITCH = "GRADER_STANDBY"  # 1 uses one without a terminal, too, and 0 never does
GPUS = ("/dev/nvidiactl", "/dev/dxg")  # the second in WSL2
# Variables that are read when a process starts or imports.
READ_EARLY = ("PATH", "LD_LIBRARY_PATH", "CUDA_", "CC", "LANG", "LC_", "TRITON_", "TORCH", "OMP_", "MKL_")
READ_BY_PYTHON = ("PYTHON", "GRADER_", "TMPDIR", "HOME")
MOST_BYTES = 1 << 20  # of a message
STREAMS = (0, 1, 2)  # input, output and errors of whoever asks
LENGTH = struct.Struct("<I")
PEER = struct.Struct("3i")  # pid, user and group of whoever connects
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Wanted(NamedTuple):
    """A run that is handed over: its arguments, and what its process gets from whoever asks."""

    arguments: list[str]
    folder: str
    environment: dict[str, str]

    def apply(self) -> None:
        """Take over folder and environment, and write to the streams that are in place now."""
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.environment, **{SWITCH: "0"})  # it does not hand the run on
        # Python's own were made for other files, and buffer a terminal as a file.
        sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115


def is_wanted() -> bool:
    """Return whether this process may use a standby: on a terminal, and where no GPU is."""
    switch = os.environ.get(SWITCH, "")
    return (switch == "1" or (not switch and sys.stdout.isatty())) and not any(map(os.path.exists, GPUS))


def place() -> Path:
    """Return the socket of this user and checkout, in a folder of this user alone; OSError without one."""
    folder = (
        Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"grader-standby-{os.getuid()}"
    )
    folder.mkdir(mode=0o700, exist_ok=True)
    facts = folder.lstat()
    if facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder of this user alone")
    return folder / hashlib.sha256(os.fsencode(ROOT)).hexdigest()[:16]


def state() -> str:
    """Return a digest of what a prepared process has read: this code, and variables of the environment."""
    found = hashlib.sha256(sys.executable.encode())
    for path in sorted((ROOT / "grader").rglob("*.py")):
        if "tests" not in path.parts:
            facts = path.stat()
            found.update(f"{path} {facts.st_mtime_ns} {facts.st_size}\n".encode())
    for name, text in sorted(os.environ.items()):
        if name.startswith((*READ_EARLY, *READ_BY_PYTHON)):
            found.update(f"{name}={text}\n".encode(errors="surrogateescape"))
    return found.hexdigest()


def run(arguments: Sequence[str]) -> int | None:
    """Have a standby run a command; return its exit code, or None if none is there, or one of older code."""
    with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as channel:
        with _address(place()) as address:
            channel.connect(address)
        pid, user, _ = _peer(channel)
        if user != os.getuid():
            return None
        wanted = Wanted(list(arguments), os.getcwd(), dict(os.environ))
        with _forwarded(pid) as ended_by:  # before the run is sent: it may begin before `_send` returns
            try:
                _send(channel, {"state": state(), **wanted._asdict()}, STREAMS)
                if _received(channel)[0].get("taken") is True:
                    return int(_received(channel)[0]["code"])
            except (OSError, ValueError):
                if not ended_by:
                    raise
            if ended_by:
                return 128 + ended_by[0]
    return None


def start(command: Sequence[str]) -> None:
    """Start a process that will stand by, as `command`; it outlives this one. Without it runs are slower."""
    with contextlib.suppress(OSError):
        processes.Child(
            command, cwd=ROOT, stdout=processes.DEVNULL, stderr=processes.DEVNULL, own_session=True
        )


class Standby:
    """The listening end. `take` waits for a run; `done` tells its exit code."""

    def __init__(self) -> None:
        self._state, self._at = state(), place()
        self._listening = socket.socket(socket.AF_UNIX)
        own = self._at.with_suffix(f".{os.getpid()}")
        with _address(own) as address:
            self._listening.bind(address)
        self._listening.listen(1)
        own.rename(self._at)  # one that was there notices that it is no longer reached
        self._inode = self._at.stat().st_ino
        self._channel: socket.socket | None = None
        self._told = False

    def take(self, idle_s: float, look_every_s: float = 5.0) -> Wanted | None:
        """Return a run that is asked for, with its standard streams in place; None once nobody can ask.

        Nobody can after `idle_s` seconds, or when the socket or this Python is gone.
        """
        self._listening.settimeout(look_every_s)
        try:
            for _ in range(max(1, round(idle_s / look_every_s))):
                with contextlib.suppress(TimeoutError):
                    channel, _ = self._listening.accept()
                    return self._taken(channel)
                if not self._is_reached() or not os.path.exists(sys.executable):
                    return None
            return None
        finally:
            if self._is_reached():
                self._at.unlink()
            self._listening.close()

    def done(self, code: int) -> None:
        """Tell the exit code to whoever asked."""
        self._told = True
        if self._channel:
            with contextlib.suppress(OSError):
                _send(self._channel, {"code": code})

    def end_with_asker(self) -> None:
        """End this process as Ctrl-C does if whoever asked ends before the exit code was told."""
        assert self._channel is not None
        with contextlib.suppress(OSError):
            self._channel.recv(1)
        if not self._told:
            os.kill(os.getpid(), signal.SIGINT)

    def _taken(self, channel: socket.socket) -> Wanted | None:
        channel.settimeout(None)
        if _peer(channel)[1] != os.getuid():
            return None
        asked, streams = _received(channel)
        if asked.pop("state", "") != self._state or len(streams) != len(STREAMS):
            _send(channel, {"taken": False})
            return None
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        self._channel = channel
        _send(channel, {"taken": True})
        return Wanted(**asked)

    def _is_reached(self) -> bool:
        with contextlib.suppress(OSError):
            return self._at.stat().st_ino == self._inode
        return False


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """Yield a short name of a socket, which may have no more than 107 bytes."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _peer(channel: socket.socket) -> tuple[int, int, int]:
    return PEER.unpack(channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))


def _send(channel: socket.socket, message: Mapping[str, object], streams: Sequence[int] = ()) -> None:
    data = json.dumps(message).encode()
    socket.send_fds(channel, [LENGTH.pack(len(data))], list(streams))
    channel.sendall(data)


def _received(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return a message and the streams that came with it; OSError or ValueError if none comes."""
    head, streams, _, _ = socket.recv_fds(channel, LENGTH.size, len(STREAMS), socket.MSG_WAITALL)
    if len(head) < LENGTH.size:
        raise ConnectionError("the other end is gone")
    (length,) = LENGTH.unpack(head)
    if length > MOST_BYTES:
        raise ValueError("too long a message")
    data = channel.recv(length, socket.MSG_WAITALL)
    return json.loads(data), streams


@contextlib.contextmanager
def _forwarded(pid: int) -> Iterator[list[int]]:
    """Send on to a process the signals that end this one, which then waits for what that process says.

    Yields those that came.
    """
    came: list[int] = []

    def send(number: int, _frame: object) -> None:
        came.append(number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    before = {number: signal.signal(number, send) for number in FORWARDED}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
