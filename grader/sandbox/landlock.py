"""Landlock through its system calls: a process gives up all files, signals and ports that are not listed."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Sequence

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same on x86-64 and on arm64
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV  # rights that a rule on a file may have
READ = READ_FILE | READ_DIR
FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # how many file rights an ABI knows
BIND_TCP, CONNECT_TCP = 1, 2
SCOPE_ABSTRACT_SOCKET, SCOPE_SIGNAL = 1, 2

_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("ports", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("rights", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def abi() -> int:
    """Return the version of Landlock in this kernel; 0 if it is missing or switched off."""
    return max(0, _libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1))


def restrict(
    execute: Sequence[str], read: Sequence[str], devices: Sequence[str], write: Sequence[str]
) -> None:
    """Confine the calling thread, and what it starts, to these files and folders; OSError if that fails.

    Files below `execute` may be read and run, those below `read` only read; `devices` also permit ioctl, and
    `write` permits everything except execution. A path that does not exist is ignored. TCP ports (from ABI 4
    on), and signals to and abstract sockets of other processes (from ABI 6 on) are refused. Source: the
    kernel's Documentation/userspace-api/landlock.
    """
    version = abi()
    known = (1 << FILE_RIGHTS.get(version, 16)) - 1
    rules = _Ruleset(
        known,
        BIND_TCP | CONNECT_TCP if version >= 4 else 0,
        SCOPE_ABSTRACT_SOCKET | SCOPE_SIGNAL if version >= 6 else 0,
    )
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _checked(_libc.syscall(CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), 0))
    try:
        for paths, rights in (
            (execute, READ | EXECUTE),
            (read, READ),
            (devices, READ | WRITE_FILE | IOCTL_DEV),
            (write, known & ~EXECUTE),
        ):
            for path in paths:
                _allow(ruleset, path, rights & known)
        _checked(_libc.syscall(RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= OF_FILES
        rule = _PathBeneath(rights, descriptor)
        _checked(_libc.syscall(ADD_RULE, ruleset, 1, ctypes.byref(rule), 0))
    finally:
        os.close(descriptor)


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"landlock: {os.strerror(code)}")
    return result
