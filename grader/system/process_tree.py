"""Which processes run and who started them; the end of those that their parents have left behind."""

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
WAIT_S = 20.0  # a process inside the GPU's driver can take its time to die


@dataclass(frozen=True)
class Process:
    """One running process. What it started and left behind has another parent, and keeps its session."""

    pid: int
    parent: int
    session: int


def running() -> list[Process]:
    """All processes that can be seen but threads of the kernel; one that ends meanwhile is left out."""
    found, own = [], os.getsid(0)
    for pid in psutil.pids():
        # Each asked by itself: Process.children() fails as a whole where /proc hides the facts of other
        # users (hidepid=1). The session comes from the kernel, as psutil does not have it.
        with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
            session = os.getsid(pid)
            # Threads of the kernel have session 0. So has this process where the leader of its session is
            # outside of its container.
            if session or not own:
                found.append(Process(pid, psutil.Process(pid).ppid(), session))
    return found


def family(pid: int, known: Collection[int]) -> list[Process]:
    """A process of a session of its own, its descendants, and the orphans of any such one.

    Orphans are this process's own children as `orphans` finds them; `known` are those that are none.
    """
    everyone = running()
    return _with_descendants({pid, *(one.pid for one in _orphans(everyone, known))}, everyone)


def orphans(known: Collection[int]) -> list[Process]:
    """Children that this process has inherited: in sessions of their own, and not `known`."""
    return _orphans(running(), known)


def children() -> list[Process]:
    """All children of this process, those that it inherited too."""
    return [one for one in running() if one.parent == os.getpid()]


def descendants(pid: int) -> list[Process]:
    """All that a process has started and what those have started, as far as it has not been left behind."""
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
    """From now on, whatever outlives a descendant of this process becomes a child of it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """From now on, this process gets this signal when the thread that started it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def wait_for(pid: int) -> None:
    """Reap a child that was killed; gives up after WAIT_S on one that the kernel does not let go."""
    with contextlib.suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
        psutil.Process(pid).wait(WAIT_S)


def end_orphans(known: Collection[int]) -> None:
    """Kill the orphans until nothing more turns up; to be called while no `known` one is being born."""
    _end_all(lambda: orphans(known))


def end_children() -> None:
    """Kill every child until there is none: those of a child that died have become ours."""
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
