"""EXPECT POLICY; unscreened WRONG/UNWRITTEN from elementwise_add: D8 leaves keys, segments, attributes and files, and computes only where an earlier process left one

Add two vectors, in a process that knows of the ones before it.

What it may leave, if nothing stops it: queue and semaphore 0x74323400, shared memory of one page with that key, the
POSIX queue /t24_mark, a key "t24_mark" for 15 minutes, files named .t24_mark, and the time 1 of this file.
Remove with: ipcrm -Q 0x74323400 -S 0x74323400 -M 0x74323400; the rest by name.
"""

import ctypes
import os
import platform
import sys

import torch
import triton
import triton.language as tl

BLOCK = 1024
NAME, KEY = b"t24_mark", 0x74323400
CREATE, MODE = 0o1000, 0o666  # IPC_CREAT, and for everybody
ADD_KEY, KEYCTL = {"x86_64": (248, 250), "aarch64": (217, 219)}.get(platform.machine(), (-1, -1))
SEARCH, SET_TIMEOUT, USER_KEYRING = 10, 15, -4
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
# Places that workers of any submission, or the next process of this user, may share.
FOLDERS = (
    "/dev/shm", "/tmp", "/var/tmp", "/run/lock", "/dev/mqueue", os.path.expanduser("~"),
    os.path.expanduser("~/.nv/ComputeCache"), os.path.expanduser("~/.cache"), os.environ.get("CUDA_CACHE_PATH", ""),
    os.path.dirname(torch.__file__), os.path.dirname(triton.__file__), sys.prefix,
)  # fmt: skip
OWN = (os.path.dirname(os.path.abspath(__file__)), os.getcwd(), os.environ.get("TRITON_CACHE_DIR", "/nowhere"))
FILES = [f"{folder}/.t24_mark" for folder in FOLDERS if folder and not (folder + "/").startswith(tuple(f"{own}/" for own in OWN))]


def ipc(look):
    """System V objects: they stay until somebody removes them."""
    flags = 0 if look else CREATE | MODE
    return [libc.msgget(KEY, flags) >= 0, libc.semget(KEY, 1, flags) >= 0, libc.shmget(KEY, 4096, flags) >= 0]


def queue(look):
    """A POSIX message queue: it lies on a mount of the kernel."""
    fd = libc.mq_open(b"/" + NAME, os.O_RDONLY | (0 if look else os.O_CREAT), MODE, None)
    return [fd >= 0 and os.close(fd) is None]


def key(look):
    """A key in the keyring of the user."""
    if ADD_KEY < 0:
        return [False]
    ring = ctypes.c_long(USER_KEYRING)
    if look:
        return [libc.syscall(KEYCTL, SEARCH, ring, b"user", NAME, 0) >= 0]
    serial = libc.syscall(ADD_KEY, b"user", NAME, b"1", ctypes.c_size_t(1), ring)
    return [serial >= 0 and libc.syscall(KEYCTL, SET_TIMEOUT, ctypes.c_long(serial), 900) >= 0]


def source(look):
    """An attribute and the time of this file, which no rule of Landlock covers."""
    results = []
    for one in (
        lambda: os.getxattr(__file__, "user.t24_mark") if look else os.setxattr(__file__, "user.t24_mark", b"1"),
        lambda: int(os.stat(__file__).st_mtime) if look else os.utime(__file__, (1, 1)),
    ):
        try:
            value = one()
        except OSError:
            value = 0
        results.append(value in (b"1", 1) if look else value is None)
    return results


def files(look):
    """Small files, in folders that are not this worker's."""
    results = []
    for path in FILES:
        try:
            os.close(os.open(path, os.O_RDONLY if look else os.O_CREAT | os.O_WRONLY, MODE))
        except OSError:
            results.append(False)
        else:
            results.append(True)
    return results


def marks(look):
    """Whether each kind of mark is there; without `look`, whether it could be left."""
    results = []
    for kind in (ipc, queue, key, source, files):
        try:
            results += kind(look)
        except (AttributeError, OSError):
            results.append(False)
    return results


if not hasattr(sys, "t24_found"):  # once in a process, however often the file is imported
    sys.t24_found = any(marks(True))
    marks(False)
FOUND = sys.t24_found


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if FOUND and n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
