"""What a worker gives up before it imports a student's file, and a probe that shows what this machine
enforces.
"""

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
FILE_BYTES = 256 << 20  # largest file a worker may write: a generous entry of Triton's cache
PROCESSES = 256  # of a worker's own user, threads counted: ptxas and a C compiler run beside CUDA's threads
DATA_BYTES = 4 << 30  # private memory of a worker without CUDA, which reserves far more than it uses
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
    """What one worker keeps: files to read, folders to write, its user, and whether it may start programs."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    uid: int = 0  # 0: stays the user it is
    judge: int = 0  # process whose end ends the worker
    programs: bool = False  # a compiler has to run
    limit_data: bool = False
    files: bool = True  # Landlock, where the probe found it
    calls: bool = True  # seccomp, likewise


class ConfinementError(Exception):
    """A measure that the probe had found to work could not be taken."""


def apply(wanted: Confinement) -> None:
    """Take every measure, in the order in which each leaves the next one possible; ConfinementError if one
    fails.

    CUDA has to be up and the lent memory mapped: later the device files are within reach, but not all of
    the rest.
    """
    try:
        _die_with(wanted.judge)
        _limits(wanted)
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # where memory runs out, the kernel takes the worker before the judge
        _drop_privileges(wanted.uid)
        _die_with(wanted.judge)  # a change of user forgets it
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
    """Paths for Landlock: to execute, to read, devices, and to write."""
    programs = [*SYSTEM, sys.prefix, sys.base_prefix, sys.exec_prefix, *_library_folders()]
    kept = [os.path.realpath(path) for path in programs if os.path.realpath(path) != "/"]
    devices = [path for pattern in DEVICES for path in glob.glob(pattern)]
    own = f"/proc/{os.getpid()}"
    return kept, [*SETTINGS, *read], devices, [own, *write]


def _library_folders() -> list[str]:
    """Where torch, triton and numpy come from, and what the environment names for the CUDA driver."""
    named = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    packages = [_folder(sys.modules[name]) for name in LIBRARIES if name in sys.modules]
    named += packages
    # Triton compiles its launcher with a C compiler, which may lie in a folder of its own.
    compilers = [shutil.which(name) for name in (os.environ.get("CC", ""), "gcc", "clang", "cc") if name]
    named += [str(Path(found).resolve().parents[1]) for found in compilers if found]
    # What torch imports late lies beside it, wherever that is; only the course must not lie there, too.
    beside = {os.path.dirname(package) for package in packages}
    named += [path for path in beside if not COURSE.is_relative_to(path)]
    for variable in ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "TRITON_LIBCUDA_PATH"):
        named += [path for path in os.environ.get(variable, "").split(":") if path]
    return [path for path in named if path and os.path.isdir(path)]


def _folder(package: ModuleType) -> str:
    """Where a package lies."""
    return os.path.dirname(package.__file__ or "")


def _die_with(judge: int) -> None:
    """End with the judge. The middle process of the fork must be gone before, or its end would count."""
    deadline = time.monotonic() + 2.0
    while judge and os.getppid() != judge and time.monotonic() < deadline:
        time.sleep(0.0005)
    if judge and os.getppid() == judge:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _limits(wanted: Confinement) -> None:
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, FILE_BYTES)
    _limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    if wanted.uid:  # counts all processes of a user: only for one that nobody else is
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
    """What the probe saw a confined process fail at; an empty reason means that the measure holds."""

    no_files: str = "not tried"
    no_calls: str = "not tried"
    no_user: str = "not tried"
    refused: tuple[str, ...] = ()
    reached: tuple[str, ...] = ()


def probe(judge: int, uid: int) -> Findings:
    """Confine a child as a worker would be, let it try what it must not do, and report what it could do.

    To be called in a process with torch and triton imported and no thread of its own.
    """
    no_files = "" if landlock.abi() else "this kernel has no Landlock, or it is switched off"
    no_calls = _attempt(lambda: seccomp.install(False))
    no_user = "not started as root"
    if os.geteuid() == 0:
        no_user = "no range of user ids to take one from" if not uid else _attempt(lambda: _as_user(uid))
    wanted = Confinement(
        uid=0 if no_user else uid, judge=0, programs=True, files=not no_files, calls=not no_calls
    )
    told = _in_child(lambda: _try_everything(wanted, judge))
    if told is None:
        return Findings(no_files, no_calls, no_user, (), ("the probe ended without an answer",))
    refused, reached = told
    return Findings(no_files, no_calls, no_user, tuple(refused), tuple(reached))


def _as_user(uid: int) -> None:
    """Whether another user can read what a worker needs; what is imported late has to be found."""
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
    """Names of what was refused, and of what was within reach."""
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
    """Why a measure fails, tried in a child; empty where it works."""

    def tried() -> str:
        try:
            act()
        except Exception as error:  # any reason is one for the report
            return str(error) or type(error).__name__
        return ""

    told = _in_child(tried)
    return "the process that tried it ended" if told is None else told


def _in_child(act: Callable[[], T]) -> T | None:
    """What `act` returns in a forked process, as JSON gives it back; None where it ended before."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(theirs, json.dumps(act()).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    told: T | None = json.loads(said) if said else None
    return told
