"""The judge's client of the fork server: start it, request workers, report why it cannot start any."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

from grader.sandbox.probe import Findings
from grader.system.process_tree import adopt_orphans
from grader.worker.protocol import FORK, OPERATORS, ProtocolError, decode

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

workers: set[int] = set()  # process ids of all running workers of this process
births = threading.RLock()  # held while a worker is started, so that it is not taken for an orphan


class ForkServer:
    """A process that has imported torch and triton and forks workers on request."""

    def __init__(self, interpreted: bool, folder: Path, uid: int = 0, operators: bool = False):
        # Workers orphaned by their double fork become children of this process.
        adopt_orphans()
        ours, theirs = socket.socketpair()
        environment = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
        environment |= {"HOME": str(folder), "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
        # Messages and kernels that depend on the order of a set are then the same in every run.
        environment["PYTHONHASHSEED"] = "0"
        if interpreted:
            environment["TRITON_INTERPRET"] = "1"
        # Not in isolated mode, which would ignore the hash seed. The environment has no other variable that
        # Python reads, and the first statement sets sys.path before anything is imported from the folder.
        here = str(Path(__file__).resolve().parents[2])
        paths = [here, *(os.path.abspath(path) for path in sys.path if path)]
        command = (
            f"import sys; sys.path[:] = {paths!r}; from grader.worker import fork_server; "
            f"fork_server.main({theirs.fileno()}, {uid}, {operators})"
        )
        self._log = open(folder / f"warm-{'interpreted' if interpreted else 'compiled'}.log", "wb")  # noqa: SIM115 - lives with self
        self._process = subprocess.Popen(
            [sys.executable, "-s", "-B", "-c", command],
            pass_fds=[theirs.fileno()],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        theirs.close()
        self._socket = ours
        self._broken, self._has_operators = False, operators
        self._findings: Findings | None = None
        self._turn = threading.Lock()  # the compiling thread starts workers, too

    def fork(self, fds: list[int], operators: bool) -> int:
        """Start a worker with these descriptors and return its pid; RuntimeError if the fork server has died.

        `operators` says that the file registers torch operators.
        """
        _ = self.findings
        if operators:
            self.import_operators()
        with self._turn, births:
            try:
                socket.send_fds(self._socket, [FORK], fds)
                pid = struct.unpack("<i", self._socket.recv(4))[0]
            except (OSError, struct.error):
                raise self._trouble() from None
            workers.add(pid)
            return pid

    @property
    def is_busy(self) -> bool:
        """Return whether another thread waits for an answer, so that no worker would be started at once."""
        return self._turn.locked()

    def import_operators(self) -> None:
        """Ask once for the imports of files that register torch operators, and do not wait for them.

        They take seconds, in which no worker is started. RuntimeError if the fork server has died.
        """
        with self._turn:
            if not self._has_operators:
                try:
                    self._socket.sendall(OPERATORS)
                except OSError:
                    raise self._trouble() from None
                self._has_operators = True

    @property
    def findings(self) -> Findings:
        """Return what the probe found this machine to enforce; waits for the imports."""
        with self._turn:
            if self._findings is None:
                self._socket.settimeout(START_LIMIT_S)
                try:
                    (length,) = struct.unpack("<I", self._socket.recv(4, socket.MSG_WAITALL))
                    payload = json.loads(self._socket.recv(length, socket.MSG_WAITALL))
                    self._findings = decode(Findings, payload)
                except (OSError, struct.error, ValueError, ProtocolError):
                    raise self._trouble() from None
            return self._findings

    @property
    def told(self) -> Findings | None:
        """Return the findings; None if the process was ended before they were read."""
        return self._findings if self._socket.fileno() < 0 else self.findings

    def _trouble(self) -> RuntimeError:
        # A killed process closes its channel before waitpid reports it.
        self._process.kill()
        self._broken = True
        self._log.flush()
        lines = Path(self._log.name).read_text(errors="replace").strip().splitlines()
        said = " | ".join(lines[-3:]) or "no output"
        return RuntimeError(f"the process for the file could not be started: {said}")

    @property
    def ended(self) -> bool:
        """Return whether the process or the channel to it has failed, so that another one must be started."""
        return self._broken or self._process.poll() is not None

    def close(self) -> None:
        """End the process; running workers continue."""
        self._socket.close()
        self._process.terminate()
        self._process.wait()
        self._log.close()
