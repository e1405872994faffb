"""A seccomp filter: a list of system calls that a worker may make; all others fail, in all of its threads.

The list is what Python, torch, Triton, a C compiler and CUDA's driver use. A call that is not listed fails
with EPERM, and one that is newer than the list with ENOSYS, as on an older kernel. No call is allowed that
acts on another process by its number, that reaches another process by a name or an address, or that creates
an object which outlives the worker, except for files.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence

from grader.sandbox.system_calls import ALLOWED, ATTRIBUTES, CHECKED, NEWEST, PROCESSES, SECCOMP

SET_MODE_FILTER, TSYNC = 1, 1
PR_SET_NO_NEW_PRIVS = 38
ALLOW, ERRNO, KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
LOAD, JUMP_EQUAL, JUMP_GREATER, JUMP_BITS, RETURN = (
    0x20,
    0x15,
    0x25,
    0x45,
    0x06,
)  # instructions of classic BPF
NUMBER, ARCH = 0, 4  # offsets in struct seccomp_data; the arguments follow from 16 on, with 8 bytes each
X32 = 0x40000000  # the third system call table of x86-64
AUDIT_ARCH = (0xC000003E, 0xC00000B7)
CLONE_THREAD, CLONE_PARENT, CLONE_NAMESPACES = 0x00010000, 0x00008000, 0x7E020080
PRIO_PROCESS = 0
# The first pushes input into a terminal, the others choose who gets a descriptor's signals.
TIOCSTI, TIOCLINUX, TIOCSCTTY, FIOSETOWN, SIOCSPGRP = 0x5412, 0x541C, 0x540E, 0x8901, 0x8902
F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY = 8, 10, 15, 1024, 1026
READ_PERSONALITY = 0xFFFFFFFF
# Names, timer slack, huge pages, names of memory, and all that only reads. Not who may trace the worker, and
# not whether it ends with the judge.
PRCTL = (2, 3, 7, 15, 16, 21, 23, 27, 29, 30, 38, 39, 41, 42, 51, 52, 54, 56, 0x53564D41, 0x41555856)
# The argument that names a process: 0 is the caller. sched_getaffinity is not among them, because the C
# library asks it for threads by their own numbers, and it only reads.
OF_A_PROCESS = {
    "prlimit64": 0, "kill": 0, "tkill": 0, "tgkill": 0, "rt_sigqueueinfo": 0, "rt_tgsigqueueinfo": 0,
    "sched_setaffinity": 0, "sched_setscheduler": 0, "sched_getscheduler": 0, "sched_setparam": 0,
    "sched_getparam": 0, "sched_setattr": 0, "sched_getattr": 0, "sched_rr_get_interval": 0, "getpgid": 0,
    "getsid": 0, "move_pages": 0, "setpriority": 1, "getpriority": 1,
}  # fmt: skip

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def table() -> int:
    """Return the column of the tables for this machine; OSError if there is none."""
    try:
        return ("x86_64", "aarch64").index(platform.machine())
    except ValueError:
        raise OSError(errno.ENOSYS, f"no system call table for {platform.machine()}") from None


def program(column: int, processes: bool, pid: int, memory_files: bool = False) -> bytes:
    """Build the filter for the process `pid`.

    Without `processes`, new processes and programs are refused; threads are allowed. Changes to attributes of
    files, which a linker needs, are then refused as well. Without `memory_files` a file in memory cannot be
    created: the worker's limit of them is none.
    """
    code = [_load(ARCH), *_unless(JUMP_EQUAL, AUDIT_ARCH[column], KILL_PROCESS), _load(NUMBER)]
    code += _if(JUMP_BITS, X32, _error(errno.ENOSYS)) if column == 0 else []
    # These first, because the kernel remembers which calls are always allowed and runs the filter for these.
    for name, rule in _rules(processes, pid, memory_files).items():
        number = CHECKED[name][column]
        if number is not None:
            body = [*rule, _return(ALLOW)]
            code += [_instruction(JUMP_EQUAL, 0, len(body), number), *body]
    started = {**PROCESSES, **ATTRIBUTES}
    for number in _numbers({**ALLOWED, **(started if processes else {})}.values(), column):
        code += _if(JUMP_EQUAL, number, ALLOW)
    if not processes:  # as at the limit of processes
        forks = [PROCESSES["fork"], PROCESSES["vfork"]]
        for number in _numbers(forks, column):
            code += _if(JUMP_EQUAL, number, _error(errno.EAGAIN))
    code += _if(JUMP_GREATER, NEWEST, _error(errno.ENOSYS))
    return b"".join([*code, _return(_error(errno.EPERM))])


def _rules(processes: bool, pid: int, memory_files: bool) -> dict[str, list[bytes]]:
    """Return for each call that is checked the instructions that refuse it."""
    own = (0, pid)
    rules = {name: _only(argument, own) for name, argument in OF_A_PROCESS.items()}
    rules["kill"] = _only(0, (0, pid, 2**32 - pid))  # the last is the process group of the worker
    for name in ("setpriority", "getpriority"):
        rules[name] = [*_only(0, (PRIO_PROCESS,)), *rules[name]]
    flags = _if(JUMP_BITS, CLONE_NAMESPACES | CLONE_PARENT, _error(errno.EPERM))
    flags += [] if processes else _unless(JUMP_BITS, CLONE_THREAD, _error(errno.EAGAIN))
    refused_ioctls = (TIOCSTI, TIOCLINUX, TIOCSCTTY, FIOSETOWN, SIOCSPGRP)
    datagrams = _if(JUMP_BITS, socket.SOCK_DGRAM, _error(errno.EACCES))  # such a pair can send to any path
    return {
        "ioctl": _none_of(1, refused_ioctls),
        "fcntl": _none_of(1, (F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY)),
        # The address: a null pointer, in both of its words.
        "sendto": [*_only(4, (0,)), *_only(4, (0,), high=True)],
        "clone": [_argument(0), *flags],
        # A filter cannot read its flags, which are in memory; the C library then uses clone.
        "clone3": [_return(_error(errno.ENOSYS))],
        "socket": [_return(_error(errno.EACCES))],
        "socketpair": [*_only(0, (socket.AF_UNIX,)), _argument(1), *datagrams],
        "memfd_create": [] if memory_files else [_return(_error(errno.EMFILE))],
        "personality": _only(0, (READ_PERSONALITY,)),
        "prctl": _only(0, PRCTL),
        **rules,
    }


def no_new_privileges() -> None:
    """Set no_new_privs: programs that this process starts gain no rights. Landlock and seccomp require it."""
    if _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")


def install(processes: bool, memory_files: bool = False) -> None:
    """Install the filter for every thread of this process, permanently; OSError if the kernel refuses."""
    column = table()
    no_new_privileges()
    code = program(column, processes, os.getpid(), memory_files)
    filter_program = _Program(len(code) // 8, code)
    if _libc.syscall(SECCOMP[column], SET_MODE_FILTER, TSYNC, ctypes.byref(filter_program)):
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")


def _numbers(pairs: Iterable[tuple[int | None, int | None]], column: int) -> Iterator[int]:
    """Yield the numbers of the calls that exist on this machine."""
    return (number for pair in pairs if (number := pair[column]) is not None)


def _instruction(code: int, true: int, false: int, value: int) -> bytes:
    return struct.pack("<HBBI", code, true, false, value)


def _load(offset: int) -> bytes:
    return _instruction(LOAD, 0, 0, offset)


def _argument(number: int, high: bool = False) -> bytes:
    """Load the low or the high word of an argument, numbered from 0."""
    return _load(16 + 8 * number + 4 * high)


def _return(result: int) -> bytes:
    return _instruction(RETURN, 0, 0, result)


def _error(code: int) -> int:
    return ERRNO | code


def _if(jump: int, value: int, result: int) -> list[bytes]:
    """Return `result` if the loaded word passes the test."""
    return [_instruction(jump, 0, 1, value), _return(result)]


def _unless(jump: int, value: int, result: int) -> list[bytes]:
    return [_instruction(jump, 1, 0, value), _return(result)]


def _only(argument: int, values: Sequence[int], high: bool = False) -> list[bytes]:
    """Refuse the call unless a word of this argument is one of `values`."""
    tests = [_instruction(JUMP_EQUAL, len(values) - at, 0, value) for at, value in enumerate(values)]
    return [_argument(argument, high), *tests, _return(_error(errno.EPERM))]


def _none_of(argument: int, values: Iterable[int]) -> list[bytes]:
    """Refuse the call if the low word of this argument is one of `values`."""
    tests = [_if(JUMP_EQUAL, value, _error(errno.EPERM)) for value in values]
    return [_argument(argument), *(part for test in tests for part in test)]
