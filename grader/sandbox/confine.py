"""Confine a worker before it imports a student's file."""

from __future__ import annotations

import ctypes
import glob
import os
import resource
import shutil
import signal
import sys
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from grader.sandbox import landlock, seccomp

PR_SET_PDEATHSIG, PR_CAPBSET_DROP = 1, 24
LAST_CAPABILITY = 63
CAPABILITY_VERSION = 0x20080522
FILE_BYTES = 256 << 20  # largest file that a worker may write; entries of Triton's cache are smaller
PROCESSES = 256  # of a worker's own user, including threads: ptxas and a C compiler beside CUDA's threads
DATA_BYTES = 4 << 30  # private memory of a worker without CUDA; CUDA reserves far more than it uses
OPEN_FILES = 4096
RLIMIT_MSGQUEUE = 12  # the module resource does not name it
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


@dataclass(frozen=True)
class Confinement:
    """What one worker may do: files to read, folders to write, its user, whether it may start programs."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    uid: int = 0  # 0: keeps its user
    judge: int = 0  # the worker is killed when this process ends
    programs: bool = False  # may start programs, such as a compiler
    limit_data: bool = False
    memory_files: bool = False  # may create files in memory, as CUDA does; their sizes are watched
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
            seccomp.install(wanted.programs, wanted.memory_files)
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
    _limit(RLIMIT_MSGQUEUE, 0)
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
