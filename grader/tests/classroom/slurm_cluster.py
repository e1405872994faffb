"""A Slurm cluster of one controller and one node on this machine, for as long as a command runs.

`python grader/tests/classroom/slurm_cluster.py COMMAND ...` starts munge, slurmctld and slurmd as this user,
with all of their state in a temporary folder, runs the command with SLURM_CONF set, and stops them.
Exit code: the command's; 3 where the cluster does not start; 4 where Slurm is not installed.
Debian's `slurm-wlm` and `munge` have all of it.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from grader.system.exit_codes import FAULT, USAGE
from grader.tests.classroom import slurm_files

MISSING = 4
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "sinfo")
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])  # daemons, which users rarely call
START_S, STOP_S = 30.0, 15.0


class ClusterError(RuntimeError):
    """Why there is no cluster, with the last lines of the daemon's log."""


def missing() -> list[str]:
    """Programs of Slurm and munge that this machine lacks."""
    return [name for name in PROGRAMS if not shutil.which(name, path=PATH)]


@contextlib.contextmanager
def cluster() -> Iterator[dict[str, str]]:
    """A cluster that takes jobs; the environment in which its commands find it. Nothing of it stays."""
    # Not the folder for temporary files of this session: a socket's path has room for 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    daemons: list[tuple[str, subprocess.Popen]] = []
    environment = {**os.environ, "PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}
    try:
        slurm_files.write(folder)
        for name, command in slurm_files.commands(folder).items():
            log = (folder / f"{name}.out").open("wb")
            # A session of its own, so that Ctrl-C reaches the command first and us after it.
            daemon = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
            daemons.append((name, daemon))
            _await(name, daemon, folder, environment)
        yield environment
    finally:
        if len(daemons) == 3:
            _cancel(environment)
        for _, daemon in reversed(daemons):
            _stop(daemon)
        _end_what_is_left(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _await(name: str, daemon: subprocess.Popen, folder: Path, environment: dict[str, str]) -> None:
    """Wait until it answers; ClusterError with what it wrote where it ends or does not."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if daemon.poll() is not None:
            break
        if _ready(name, folder, environment):
            return
        time.sleep(0.1)
    logs = [folder / f"{name}.log", folder / f"{name}.out"]
    lines = [line for log in logs if log.is_file() for line in log.read_text(errors="replace").splitlines()]
    raise ClusterError("\n".join([f"{name} did not start", *lines[-8:]]))


def _ready(name: str, folder: Path, environment: dict[str, str]) -> bool:
    if name == "munged":
        return (folder / "munge.socket").exists()
    ask = ["sinfo", "--noheader", "--format=%t"]
    try:
        done = subprocess.run(ask, env=environment, capture_output=True, text=True, timeout=5, check=False)
    except subprocess.TimeoutExpired:
        return False
    states = set(done.stdout.split())
    return done.returncode == 0 and (name == "slurmctld" or states == {"idle"})


def _cancel(environment: dict[str, str]) -> None:
    """End the jobs while the node can still be told to."""
    end = time.monotonic() + STOP_S
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(["scancel", "--user", getpass.getuser()], env=environment, timeout=STOP_S, check=False)
        while time.monotonic() < end:
            ask = ["squeue", "--noheader"]
            left = subprocess.run(ask, env=environment, capture_output=True, timeout=STOP_S, check=False)
            if left.returncode or not left.stdout.strip():
                return
            time.sleep(0.2)


def _stop(daemon: subprocess.Popen) -> None:
    """End it and all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(daemon.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(STOP_S)
            return


def _end_what_is_left(folder: Path) -> None:
    """Kill what still has the cluster in its environment: the process of a job outlives the node's daemon."""
    end = time.monotonic() + STOP_S
    while True:
        left = [
            one
            for one in psutil.process_iter(["environ"])  # None of a process that has ended, or is not ours
            if (one.info["environ"] or {}).get("SLURM_CONF", "").startswith(str(folder))
        ]
        if not left or time.monotonic() > end:
            break
        time.sleep(0.1)
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()


def main(command: list[str]) -> int:
    """Run a command beside a cluster; its exit code."""
    if not command:
        print("usage: slurm_cluster.py COMMAND …", file=sys.stderr)
        return USAGE
    if missing():
        print(
            f"Slurm is not installed ({', '.join(missing())} missing): sudo apt-get install slurm-wlm munge",
            file=sys.stderr,
        )
        return MISSING
    try:
        with cluster() as environment:
            return subprocess.run(command, env=environment, check=False).returncode
    except ClusterError as error:
        print(error, file=sys.stderr)
        return FAULT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
