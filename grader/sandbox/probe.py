"""Probe what this machine enforces: a confined process tries each kind of what a worker must not do."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import json
import os
import resource
import socket
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from grader.sandbox import landlock, seccomp
from grader.sandbox.confine import COURSE, Confinement, apply
from grader.sandbox.seccomp import F_SETOWN
from grader.sandbox.system_calls import CHECKED, REFUSED

NEEDED = (
    "files of the grader",
    "files of others",
    "writing to /tmp",
    "signals to the judge",
    "memory of the judge",
    "limits and priorities of the judge",
    "the network",
    "sockets of other processes",
    "objects that outlive a worker",
    "kernel interfaces",
    "privileges",
)
REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS)  # any other error comes from within the call
PTRACE_PEEKTEXT = 1  # fails if the process is not traced; PTRACE_ATTACH would stop it
A_KEY = 0x7E57

_libc = ctypes.CDLL(None, use_errno=True)
T = TypeVar("T")
Attempt = Callable[[], object]  # raises PermissionError if it is refused


@dataclass(frozen=True)
class Findings:
    """What the probe saw refused in a confined process; an empty reason means that the measure works."""

    no_files: str = "not tried"
    no_calls: str = "not tried"
    no_user: str = "not tried"
    refused: tuple[str, ...] = ()
    reached: tuple[str, ...] = ()  # with the attempts that succeeded


def begin(judge: int, uid: int) -> Callable[[], Findings]:
    """Confine a child process like a worker and let it try what is forbidden.

    Call it in a process that has imported torch and triton and has only one thread. What it returns waits for
    the child, and says what was refused; this process can import other modules until then.
    """
    no_files = "" if landlock.abi() else "this kernel has no Landlock, or it is switched off"
    no_calls = _attempt(lambda: seccomp.install(False))
    no_user = why_no_user(uid)
    wanted = Confinement(
        uid=0 if no_user else uid, judge=0, programs=True, files=not no_files, calls=not no_calls
    )
    answered = begin_in_child(lambda: _try_everything(wanted, judge))

    def found() -> Findings:
        answer = answered()
        if answer is None:
            return Findings(no_files, no_calls, no_user, (), ("the probe ended without an answer",))
        refused, reached = answer
        return Findings(no_files, no_calls, no_user, tuple(refused), tuple(reached))

    return found


def why_no_user(uid: int) -> str:
    """Return why workers have no user of their own, with the command that mends it; "" if `uid` is one."""
    return no_user_here(uid) or _attempt(lambda: _as_user(uid))


def no_user_here(uid: int) -> str:
    """Return the same without trying to be that user."""
    if os.geteuid() != 0:
        return "not started as root: run the same command with sudo, as in `sudo make grade`"
    if not uid:
        return "this container has no user ids to give away: run it with `--userns=host`"
    return ""


def _as_user(uid: int) -> None:
    """Change to another user and try to read what a worker imports late; OSError if that fails."""
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    needed = [sys.modules[name].__file__ or "" for name in ("torch", "triton") if name in sys.modules]
    for path in (
        *needed,
        os.path.join(sysconfig.get_path("stdlib"), "os.py"),
        os.path.realpath(sys.executable),
    ):
        if not os.access(path, os.R_OK):
            shut = next((one for one in _above(path) if not os.access(one, os.X_OK)), path)
            how = f"chmod o+{'x' if os.path.isdir(shut) else 'rx'} {shut}"
            raise OSError(f"other users cannot read {path}: `{how}`")


def _above(path: str) -> list[str]:
    """Return the folders above a file, from the root on."""
    return [str(one) for one in reversed(Path(path).parents)]


def _try_everything(wanted: Confinement, judge: int) -> tuple[list[str], list[str]]:
    """Return the kinds of which each attempt was refused, and those of which one succeeded."""
    # No module may be imported after the confinement, and no descriptor opened that an attempt needs.
    attempts: dict[str, dict[str, Attempt]] = {
        "files of the grader": _files(judge),
        "files of others": {"list /": lambda: os.listdir("/")},
        "writing to /tmp": {"create": lambda: open(f"/tmp/grader-probe-{os.getpid()}", "w").close()},
        "signals to the judge": _signals(judge),
        "memory of the judge": _memory(judge),
        "limits and priorities of the judge": _limits(judge),
        "the network": {
            name: functools.partial(_socket, family, kind)
            for name, family, kind in (
                ("AF_INET", socket.AF_INET, socket.SOCK_STREAM),
                ("AF_INET6", socket.AF_INET6, socket.SOCK_DGRAM),
                ("AF_NETLINK", socket.AF_NETLINK, socket.SOCK_RAW),
                ("AF_PACKET", socket.AF_PACKET, socket.SOCK_RAW),
            )
        },
        "sockets of other processes": _sockets(),
        "objects that outlive a worker": _named(
            ("shmget", A_KEY), ("semget", A_KEY), ("msgget", A_KEY), ("mq_open",), ("add_key",),
            ("request_key",), ("keyctl",),
        ),
        "kernel interfaces": _named(
            ("perf_event_open",), ("bpf",), ("userfaultfd",), ("io_uring_setup",), ("io_setup",),
            ("name_to_handle_at",), ("open_by_handle_at",), ("inotify_init1",), ("fanotify_init",),
            ("memfd_secret",), ("timer_create",),
        ),
        "privileges": {
            "chroot": lambda: os.chroot("/proc"),
            **_named(
                ("mount",), ("umount2",), ("open_tree",), ("move_mount",), ("fsopen",), ("mount_setattr",),
                ("pivot_root",), ("setns",), ("unshare",), ("clock_settime",), ("adjtimex",), ("acct",),
                ("swapon",), ("init_module",), ("syslog",),
            ),
        },
    }  # fmt: skip
    apply(wanted)
    refused, reached = [], []
    for kind, tried in attempts.items():
        succeeded = [name for name, act in tried.items() if not _is_refused(act)]
        if succeeded:
            reached.append(f"{kind} ({', '.join(succeeded)})")
        else:
            refused.append(kind)
    return refused, reached


def _is_refused(act: Attempt) -> bool:
    try:
        act()
    except OSError as error:
        return error.errno in REFUSALS
    return False


def _files(judge: int) -> dict[str, Attempt]:
    hidden = str(COURSE / "grader" / "judge" / "comparison.py")
    return {
        "read": lambda: open(hidden).close(),
        "environment": lambda: open(f"/proc/{judge}/environ").close(),
        "descriptors": lambda: os.listdir(f"/proc/{judge}/fd"),
    }


def _signals(judge: int) -> dict[str, Attempt]:
    end, _ = os.pipe()
    return {
        "kill": lambda: os.kill(judge, 0),
        "owner of a pipe": lambda: fcntl.fcntl(end, F_SETOWN, judge),
        **_named(
            ("tgkill", judge, judge),
            ("rt_sigqueueinfo", judge),
            ("pidfd_open", judge),
            ("pidfd_send_signal",),
        ),
    }


def _memory(judge: int) -> dict[str, Attempt]:
    return {
        "/proc": lambda: open(f"/proc/{judge}/mem", "rb").close(),
        **_named(
            ("ptrace", PTRACE_PEEKTEXT, judge), ("process_vm_readv", judge), ("process_vm_writev", judge),
            ("kcmp", judge, judge), ("pidfd_getfd",), ("process_madvise",), ("process_mrelease",),
            ("get_robust_list", judge), ("move_pages", judge),
        ),
    }  # fmt: skip


def _limits(judge: int) -> dict[str, Attempt]:
    cores = os.sched_getaffinity(judge)
    return {
        "prlimit": lambda: resource.prlimit(judge, resource.RLIMIT_CPU),
        "cores": lambda: os.sched_setaffinity(judge, cores),
        "priority": lambda: os.getpriority(os.PRIO_PROCESS, judge),
        "scheduler": lambda: os.sched_getscheduler(judge),
        **_named(("ioprio_set", 1, judge), ("migrate_pages", judge), ("sched_setattr", judge)),
    }


def _socket(family: int, kind: int) -> None:
    socket.socket(family, kind).close()


def _sockets() -> dict[str, Attempt]:
    def made(kind: int) -> Attempt:
        return lambda: socket.socket(socket.AF_UNIX, kind).close()

    ours, _theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return {
        "stream": made(socket.SOCK_STREAM),
        "datagram": made(socket.SOCK_DGRAM),
        "pair of datagrams": lambda: socket.socketpair(type=socket.SOCK_DGRAM),
        "send to a path": lambda: ours.sendto(b"x", "/run/no-such-socket"),
        "send to a name": lambda: ours.sendto(b"x", "\0no-such-socket"),
        **_named(
            ("connect", ours.fileno()), ("bind", ours.fileno()), ("listen", ours.fileno()), ("accept4",)
        ),
    }


def _named(*calls: Sequence[str | int]) -> dict[str, Attempt]:
    """Return attempts of system calls: a name, and its first arguments; the others are 0."""
    column = seccomp.table()
    numbers = {**REFUSED, **CHECKED}

    def made(name: str, *arguments: int) -> Attempt:
        number = numbers[name][column]
        words = [ctypes.c_long(value) for value in (*arguments, *(0,) * (6 - len(arguments)))]

        def act() -> None:
            if number is not None and _libc.syscall(ctypes.c_long(number), *words) < 0:
                raise OSError(ctypes.get_errno(), name)

        return act

    return {str(name): made(str(name), *map(int, arguments)) for name, *arguments in calls}


def _attempt(act: Callable[[], None]) -> str:
    """Try a measure in a child process; return why it fails, or "" if it works."""

    def tried() -> str:
        try:
            act()
        except Exception as error:  # any error is a reason for the report
            return str(error) or type(error).__name__
        return ""

    reason = in_child(tried)
    return "the process that tried it ended" if reason is None else reason


def in_child(act: Callable[[], T]) -> T | None:
    """Return what `act` returns in a forked process, through JSON; None if the process ended before."""
    return begin_in_child(act)()


def begin_in_child(act: Callable[[], T]) -> Callable[[], T | None]:
    """Start the same, and return what waits for the answer; call that once."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(theirs, json.dumps(act()).encode())
        finally:
            os._exit(0)
    os.close(theirs)

    def answered() -> T | None:
        with os.fdopen(ours, "rb") as pipe:
            data = pipe.read()
        os.waitpid(child, 0)
        answer: T | None = json.loads(data) if data else None
        return answer

    return answered
