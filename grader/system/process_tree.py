"""List running processes with parent and session; adopt and kill orphaned processes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import psutil

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SWEEPS = 50
MOST_STAT = 4096  # bytes of /proc/PID/stat, which has a line of about 50 numbers
WAIT_S = 20.0  # a killed process that is inside the GPU's driver may take seconds to end


@dataclass(frozen=True)
class Process:
    """One running process. An orphan gets another parent, but keeps its session."""

    pid: int
    parent: int
    session: int


def running() -> list[Process]:
    """Return all visible processes except kernel threads; processes that end meanwhile are left out."""
    found, own = [], os.getsid(0)
    for pid in psutil.pids():
        # One by one: Process.children() fails altogether if /proc hides other users' processes (hidepid=1).
        # psutil does not report sessions, and one read of this file takes a tenth of its time.
        with contextlib.suppress(OSError, IndexError, ValueError):
            parent, _, session = map(int, _stat(pid)[1:4])
            # Kernel threads have session 0. So does this process if its session leader is outside of its
            # container.
            if session or not own:
                found.append(Process(pid, parent, session))
    return found


def _stat(of: int | str) -> list[str]:
    """Return the fields of /proc/PID/stat after the name: state, parent, group, session and so on."""
    # By system calls alone: every process is read, from many threads, and what a file object does besides
    # takes as long again.
    file = os.open(f"/proc/{of}/stat", os.O_RDONLY)
    try:
        # The name of a program stands in parentheses, and may itself contain some.
        return os.read(file, MOST_STAT).rpartition(b")")[2].decode(errors="replace").split()
    finally:
        os.close(file)


def family(pid: int, known: Collection[int]) -> list[Process]:
    """Return a process that leads its own session, all orphans of this process, and their descendants.

    `known` are pids of children that are no orphans.
    """
    everyone = running()
    return _with_descendants({pid, *(one.pid for one in _orphans(everyone, known))}, everyone)


def orphans(known: Collection[int]) -> list[Process]:
    """Return the children that this process has adopted: those in another session and not in `known`."""
    return _orphans(running(), known)


def is_stopped(child: int) -> bool:
    """Return whether every thread of a child has stopped, after SIGSTOP; True for one that has ended."""
    try:  # the kernel reports a stop when the last thread has stopped; nothing is reaped
        return os.waitid(os.P_PID, child, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def ran(pid: int) -> str:
    """Return how long the first thread of a process has run, and how often, as the kernel counts it; "" if it
    does not.

    Of a stopped process nothing of it changes: to be continued wakes every thread.
    """
    with contextlib.suppress(OSError):
        file = os.open(f"/proc/{pid}/schedstat", os.O_RDONLY)
        try:
            return os.read(file, MOST_STAT).decode(errors="replace")
        finally:
            os.close(file)
    return ""


def children() -> list[Process]:
    """Return all children of this process, adopted ones included."""
    return [one for one in running() if one.parent == os.getpid()]


def descendants(pid: int) -> list[Process]:
    """Return the descendants of a process, without orphans, whose parent has ended."""
    return [one for one in _with_descendants({pid}, running()) if one.pid != pid]


def _orphans(everyone: Iterable[Process], known: Collection[int]) -> list[Process]:
    session = os.getsid(0)
    return [
        one
        for one in everyone
        if one.parent == os.getpid() and one.session != session and one.pid not in known
    ]


def _with_descendants(roots: set[int], everyone: Collection[Process]) -> list[Process]:
    members = set(roots)
    while more := {one.pid for one in everyone if one.parent in members} - members:
        members |= more
    return [one for one in everyone if one.pid in members]


def adopt_orphans() -> None:
    """Make this process the subreaper: orphaned descendants become its children from now on."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when the thread that started it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def wait_for(pid: int) -> None:
    """Reap a child that was killed; give up after WAIT_S seconds if it does not end."""
    with contextlib.suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
        psutil.Process(pid).wait(WAIT_S)


def end_orphans(known: Collection[int]) -> None:
    """Kill orphans until none is left; do not call it while a process is started that will be in `known`."""
    _end_all(lambda: orphans(known))


def end_children() -> None:
    """Kill all children until none is left; children of a killed child become children of this process."""
    _end_all(children)


def _end_all(find: Callable[[], list[Process]]) -> None:
    for _ in range(SWEEPS):
        found = find()
        if not found:
            return
        for one in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one.pid, signal.SIGKILL)
        for one in found:
            wait_for(one.pid)
