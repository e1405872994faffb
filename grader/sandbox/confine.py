"""Confine a worker before it imports a student's file, and probe what this machine enforces."""

from __future__ import annotations

import ctypes
import errno
import glob
import json
import os
import resource
import shutil
import signal
import socket
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from grader.sandbox import landlock, seccomp

PR_SET_PDEATHSIG, PR_CAPBSET_DROP = 1, 24
LAST_CAPABILITY = 63
CAPABILITY_VERSION = 0x20080522
FILE_BYTES = 256 << 20  # largest file that a worker may write; entries of Triton's cache are smaller
PROCESSES = 256  # of a worker's own user, including threads: ptxas and a C compiler beside CUDA's threads
DATA_BYTES = 4 << 30  # private memory of a worker without CUDA; CUDA reserves far more than it uses
OPEN_FILES = 4096
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin")
SETTINGS = (
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime",
    "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/OpenCL", "/etc/vulkan", "/sys/devices",
    "/sys/bus", "/sys/module/nvidia", "/sys/kernel/mm", "/proc/driver", "/proc/devices", "/proc/modules",
    "/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/version", "/proc/filesystems", "/proc/sys",
    "/dev/urandom", "/dev/random", "/dev/zero",
)  # fmt: skip
DEVICES = ("/dev/null", "/dev/nvidia*", "/dev/dxg", "/dev/nvidia-caps")

LIBRARIES = ("torch", "triton", "numpy")
COURSE = Path(__file__).resolve().parents[2]

_libc = ctypes.CDLL(None, use_errno=True)
T = TypeVar("T")


@dataclass(frozen=True)
class Confinement:
    """What one worker may do: files to read, folders to write, its user, whether it may start programs."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    uid: int = 0  # 0: keeps its user
    judge: int = 0  # the worker is killed when this process ends
    programs: bool = False  # may start programs, such as a compiler
    limit_data: bool = False
    files: bool = True  # apply Landlock, if the probe found it
    calls: bool = True  # apply the seccomp filter, if the probe found it


class ConfinementError(Exception):
    """A measure that worked in the probe has failed."""


def apply(wanted: Confinement) -> None:
    """Apply every measure, in an order that leaves the next one possible; ConfinementError if one fails.

    CUDA must be initialized and the lent memory mapped before: afterwards the device files can be opened, but
    not everything else that this needs.
    """
    try:
        _die_with(wanted.judge)
        _limits(wanted)
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # if memory runs out, the kernel kills the worker and not the judge
        _drop_privileges(wanted.uid)
        _die_with(wanted.judge)  # again: a change of user clears it
        seccomp.no_new_privileges()
        if wanted.files:
            landlock.restrict(*view(wanted.read, wanted.write))
        if wanted.calls:
            seccomp.install(wanted.programs)
    except OSError as error:
        raise ConfinementError(str(error)) from error


def view(
    read: Sequence[str] = (), write: Sequence[str] = ()
) -> tuple[list[str], list[str], list[str], list[str]]:
    """Return the paths for Landlock: to execute, to read, devices, and to write."""
    programs = [*SYSTEM, sys.prefix, sys.base_prefix, sys.exec_prefix, *_library_folders()]
    kept = [os.path.realpath(path) for path in programs if os.path.realpath(path) != "/"]
    devices = [path for pattern in DEVICES for path in glob.glob(pattern)]
    own = f"/proc/{os.getpid()}"
    return kept, [*SETTINGS, *read], devices, [own, *write]


def _library_folders() -> list[str]:
    """List the folders of Python, torch, triton, numpy, C compilers, and CUDA as the environment names it."""
    named = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    packages = [_folder(sys.modules[name]) for name in LIBRARIES if name in sys.modules]
    named += packages
    # Triton compiles its launcher with a C compiler, which may be in a separate folder.
    compilers = [shutil.which(name) for name in (os.environ.get("CC", ""), "gcc", "clang", "cc") if name]
    named += [str(Path(found).resolve().parents[1]) for found in compilers if found]
    # What torch imports late is beside it. A folder that also has the course in it is not permitted.
    beside = {os.path.dirname(package) for package in packages}
    named += [path for path in beside if not COURSE.is_relative_to(path)]
    for variable in ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "TRITON_LIBCUDA_PATH"):
        named += [path for path in os.environ.get(variable, "").split(":") if path]
    return [path for path in named if path and os.path.isdir(path)]


def _folder(package: ModuleType) -> str:
    """Return the folder of a package."""
    return os.path.dirname(package.__file__ or "")


def _die_with(judge: int) -> None:
    """Have the kernel kill this process when the judge ends; wait first until the judge is its parent."""
    deadline = time.monotonic() + 2.0
    while judge and os.getppid() != judge and time.monotonic() < deadline:
        time.sleep(0.0005)
    if judge and os.getppid() == judge:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _limits(wanted: Confinement) -> None:
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, FILE_BYTES)
    _limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    if wanted.uid:  # the limit counts all processes of a user, so it needs a user of the worker's own
        _limit(resource.RLIMIT_NPROC, PROCESSES)
    if wanted.limit_data:
        _limit(resource.RLIMIT_DATA, DATA_BYTES)


def _limit(which: int, most: int) -> None:
    _, hard = resource.getrlimit(which)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (most, most))


def _drop_privileges(uid: int) -> None:
    if os.geteuid() != 0:
        return
    for capability in range(LAST_CAPABILITY + 1):
        _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        return
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    if _libc.capset(header, (ctypes.c_uint32 * 6)()):
        raise OSError(ctypes.get_errno(), "capset")


# -- the probe


@dataclass(frozen=True)
class Findings:
    """What the probe saw refused in a confined process; an empty reason means that the measure works."""

    no_files: str = "not tried"
    no_calls: str = "not tried"
    no_user: str = "not tried"
    refused: tuple[str, ...] = ()
    reached: tuple[str, ...] = ()


def probe(judge: int, uid: int) -> Findings:
    """Confine a child process like a worker, let it try what is forbidden, and report what was refused.

    Call it in a process that has imported torch and triton and has only one thread.
    """
    no_files = "" if landlock.abi() else "this kernel has no Landlock, or it is switched off"
    no_calls = _attempt(lambda: seccomp.install(False))
    no_user = "not started as root"
    if os.geteuid() == 0:
        no_user = "no range of user ids to take one from" if not uid else _attempt(lambda: _as_user(uid))
    wanted = Confinement(
        uid=0 if no_user else uid, judge=0, programs=True, files=not no_files, calls=not no_calls
    )
    answer = _in_child(lambda: _try_everything(wanted, judge))
    if answer is None:
        return Findings(no_files, no_calls, no_user, (), ("the probe ended without an answer",))
    refused, reached = answer
    return Findings(no_files, no_calls, no_user, tuple(refused), tuple(reached))


def _as_user(uid: int) -> None:
    """Change to another user and try to read what a worker imports late; OSError if that fails."""
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    for name in ("torch", "triton"):
        with open(sys.modules[name].__file__ or "", "rb") as file:
            file.read(1)
    with open(os.path.join(sysconfig.get_path("stdlib"), "os.py"), "rb") as file:
        file.read(1)
    if not os.access(os.path.realpath(sys.executable), os.X_OK):
        raise OSError(errno.EACCES, "the interpreter cannot be run by another user")


def _try_everything(wanted: Confinement, judge: int) -> tuple[list[str], list[str]]:
    """Return the names of the attempts that were refused, and of those that succeeded."""
    hidden = str(COURSE / "grader" / "judge" / "comparison.py")
    ours = socket.socket(socket.AF_UNIX)
    ours.close()
    apply(wanted)
    attempts: dict[str, Callable[[], object]] = {
        "files of the grader": lambda: open(hidden).close(),
        "files of others": lambda: os.listdir("/"),
        "writing to /tmp": lambda: open(f"/tmp/grader-probe-{os.getpid()}", "w").close(),
        "signals to the judge": lambda: os.kill(judge, 0),
        "memory of the judge": lambda: open(f"/proc/{judge}/mem", "rb").close(),
        "the network": lambda: socket.socket(socket.AF_INET).close(),
        "privileges": lambda: os.chroot("/proc"),
    }
    refused, reached = [], []
    for name, act in attempts.items():
        try:
            act()
        except OSError:
            refused.append(name)
        else:
            reached.append(name)
    return refused, reached


def _attempt(act: Callable[[], None]) -> str:
    """Try a measure in a child process; return why it fails, or "" if it works."""

    def tried() -> str:
        try:
            act()
        except Exception as error:  # any error is a reason for the report
            return str(error) or type(error).__name__
        return ""

    reason = _in_child(tried)
    return "the process that tried it ended" if reason is None else reason


def _in_child(act: Callable[[], T]) -> T | None:
    """Return what `act` returns in a forked process, through JSON; None if the process ended before."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(theirs, json.dumps(act()).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    answer: T | None = json.loads(data) if data else None
    return answer
