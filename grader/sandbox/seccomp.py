"""A seccomp filter: system calls that a worker does not need fail with an error, in all of its threads."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct

SET_MODE_FILTER, TSYNC = 1, 1
PR_SET_NO_NEW_PRIVS = 38
ALLOW, ERRNO, KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
LOAD, JUMP_EQUAL, JUMP_BITS, RETURN = 0x20, 0x15, 0x45, 0x06  # of classic BPF: ld w abs, jeq, jset, ret
NUMBER, ARCH, FIRST, SECOND = 0, 4, 16, 24  # offsets in struct seccomp_data; low words of the arguments
X32 = 0x40000000  # the third system call table of x86-64
CLONE_THREAD, CLONE_NAMESPACES = 0x00010000, 0x7E020080
TIOCSTI, TIOCLINUX = 0x5412, 0x541C  # push input into a terminal

# Numbers for x86-64 and arm64; None if the call does not exist. Names as in the manual pages.
CALLS = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    "perf_event_open": (298, 241), "bpf": (321, 280), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "mount_setattr": (442, 442),
    "unshare": (272, 97), "setns": (308, 268), "init_module": (175, 105), "finit_module": (313, 273),
    "kexec_load": (246, 104), "reboot": (169, 142), "swapon": (167, 224), "acct": (163, 89),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "sethostname": (170, 161),
}  # fmt: skip
# Not covered by Landlock: modes, owners, times and attributes of any file that this user owns.
ATTRIBUTES = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
}  # fmt: skip
SOCKET, IOCTL, CLONE, CLONE3 = (41, 198), (16, 29), (56, 220), (435, 435)
FORKS = {"fork": (57, None), "vfork": (58, None)}
EXECS = {"execve": (59, 221), "execveat": (322, 281)}
SECCOMP = (317, 277)
AUDIT_ARCH = (0xC000003E, 0xC00000B7)

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def table() -> int:
    """Return the column of the tables for this machine; OSError if there is none."""
    try:
        return ("x86_64", "aarch64").index(platform.machine())
    except ValueError:
        raise OSError(errno.ENOSYS, f"no system call table for {platform.machine()}") from None


def program(column: int, processes: bool) -> bytes:
    """Build the filter. Without `processes`, new processes and programs are refused; threads are allowed.

    Changes to attributes of files, which a linker needs, are then refused as well.
    """

    def refused(code: int) -> int:
        return ERRNO | code

    code = [_load(ARCH), _unless_equal(AUDIT_ARCH[column], KILL_PROCESS), _load(NUMBER)]
    code += [_if_bits(X32, refused(errno.ENOSYS))] if column == 0 else []
    numbers = [pair[column] for pair in CALLS.values()]
    code += [_if_equal(number, refused(errno.EPERM)) for number in numbers]
    # A filter cannot read its flags, which are in memory; the C library then uses clone.
    code += [_if_equal(CLONE3[column], refused(errno.ENOSYS))]
    if not processes:
        forks = [number for pair in FORKS.values() if (number := pair[column])]
        code += [_if_equal(number, refused(errno.EAGAIN)) for number in forks]
        attributes = [number for pair in ATTRIBUTES.values() if (number := pair[column])]
        code += [_if_equal(number, refused(errno.EPERM)) for number in attributes]
        code += [_if_equal(pair[column], refused(errno.EPERM)) for pair in EXECS.values()]
    code += _within(SOCKET[column], FIRST, [_unless_equal(socket.AF_UNIX, refused(errno.EACCES))])
    code += _within(
        IOCTL[column], SECOND, [_if_equal(call, refused(errno.EPERM)) for call in (TIOCSTI, TIOCLINUX)]
    )
    forked = [] if processes else [_unless_bits(CLONE_THREAD, refused(errno.EAGAIN))]
    code += _within(CLONE[column], FIRST, [_if_bits(CLONE_NAMESPACES, refused(errno.EPERM)), *forked])
    return b"".join([*(part for one in code for part in one), _instruction(RETURN, 0, 0, ALLOW)])


def no_new_privileges() -> None:
    """Set no_new_privs: programs that this process starts gain no rights. Landlock and seccomp require it."""
    if _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")


def install(processes: bool) -> None:
    """Install the filter for every thread of this process, permanently; OSError if the kernel refuses."""
    column = table()
    no_new_privileges()
    code = program(column, processes)
    filter_program = _Program(len(code) // 8, code)
    if _libc.syscall(SECCOMP[column], SET_MODE_FILTER, TSYNC, ctypes.byref(filter_program)):
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")


def _instruction(code: int, true: int, false: int, value: int) -> bytes:
    return struct.pack("<HBBI", code, true, false, value)


def _load(offset: int) -> list[bytes]:
    return [_instruction(LOAD, 0, 0, offset)]


def _if_equal(value: int, result: int) -> list[bytes]:
    return [_instruction(JUMP_EQUAL, 0, 1, value), _instruction(RETURN, 0, 0, result)]


def _unless_equal(value: int, result: int) -> list[bytes]:
    return [_instruction(JUMP_EQUAL, 1, 0, value), _instruction(RETURN, 0, 0, result)]


def _if_bits(value: int, result: int) -> list[bytes]:
    return [_instruction(JUMP_BITS, 0, 1, value), _instruction(RETURN, 0, 0, result)]


def _unless_bits(value: int, result: int) -> list[bytes]:
    return [_instruction(JUMP_BITS, 1, 0, value), _instruction(RETURN, 0, 0, result)]


def _within(number: int, argument: int, checks: list[list[bytes]]) -> list[list[bytes]]:
    """Check an argument of one call; afterwards the call's number is loaded again."""
    body = [*_load(argument), *(part for check in checks for part in check), *_load(NUMBER)]
    return [[_instruction(JUMP_EQUAL, 0, len(body), number), *body]]
