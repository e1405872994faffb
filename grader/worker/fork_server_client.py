"""The judge's side of a warm parent: start it, ask it for workers, say why where it cannot give any."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

from grader.sandbox.confine import Findings
from grader.system.process_tree import adopt_orphans
from grader.worker.protocol import OPERATORS, PLAIN, ProtocolError, decode

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

workers: set[int] = set()  # process ids of all workers of this process, those that have not ended
births = threading.RLock()  # held while a worker is being born, so that nobody takes it for an orphan


class ForkServer:
    """A process that has imported torch and triton and forks workers on request."""

    def __init__(self, interpreted: bool, folder: Path, uid: int = 0):
        # Workers orphaned by their double fork become children of this process.
        adopt_orphans()
        ours, theirs = socket.socketpair()
        environment = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
        environment |= {"HOME": str(folder), "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
        # Messages and kernels that hang on the order of a set are then the same in every run.
        environment["PYTHONHASHSEED"] = "0"
        if interpreted:
            environment["TRITON_INTERPRET"] = "1"
        # Not isolated, which would ignore the hash seed: the environment has nothing else that Python heeds,
        # and the path is the command's first statement, before anything could come from the working folder.
        here = str(Path(__file__).resolve().parents[2])
        paths = [here, *(os.path.abspath(path) for path in sys.path if path)]
        command = (
            f"import sys; sys.path[:] = {paths!r}; "
            f"import grader.worker.fork_server; grader.worker.fork_server.main({theirs.fileno()}, {uid})"
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
        self._broken = False
        self._findings: Findings | None = None
        self._turn = threading.Lock()  # the compiling thread forks workers, too

    def fork(self, fds: list[int], operators: bool) -> int:
        """A new worker with these descriptors, perhaps for a file that registers operators; returns its pid.
        RuntimeError where the parent has died.
        """
        _ = self.findings
        with self._turn, births:
            try:
                socket.send_fds(self._socket, [OPERATORS if operators else PLAIN], fds)
                pid = struct.unpack("<i", self._socket.recv(4))[0]
            except (OSError, struct.error):
                raise self._trouble() from None
            workers.add(pid)
            return pid

    @property
    def findings(self) -> Findings:
        """What the probe found this machine to enforce; waits for the imports."""
        with self._turn:
            if self._findings is None:
                self._socket.settimeout(START_LIMIT_S)
                try:
                    (length,) = struct.unpack("<I", self._socket.recv(4, socket.MSG_WAITALL))
                    told = json.loads(self._socket.recv(length, socket.MSG_WAITALL))
                    self._findings = decode(Findings, told)
                except (OSError, struct.error, ValueError, ProtocolError):
                    raise self._trouble() from None
            return self._findings

    @property
    def told(self) -> Findings | None:
        """The findings; None where the process was ended before anybody asked for them."""
        return self._findings if self._socket.fileno() < 0 else self.findings

    def _trouble(self) -> RuntimeError:
        # A killed process closes its channel some time before it can be waited for.
        self._process.kill()
        self._broken = True
        self._log.flush()
        lines = Path(self._log.name).read_text(errors="replace").strip().splitlines()
        said = " | ".join(lines[-3:]) or "no output"
        return RuntimeError(f"the warm parent did not start a worker: {said}")

    @property
    def ended(self) -> bool:
        """Whether the process or the channel to it is gone; another one has to be started then."""
        return self._broken or self._process.poll() is not None

    def close(self) -> None:
        """End the process; running workers are not touched."""
        self._socket.close()
        self._process.terminate()
        self._process.wait()
        self._log.close()
