"""EXPECT POLICY; unscreened WRONG/UNWRITTEN from elementwise_add: D6 computes only where a POSIX timer can send SIGCONT to its stopped process

Add two vectors, in a process that continues by itself when it is stopped.

A timer with SIGEV_SIGNAL and the signal SIGCONT sends from the kernel: no kill(), no other process, nothing that
Landlock's scope for signals sees. It needs timer_create and timer_settime only.
"""

import ctypes
import os
import signal
import time

import torch
import triton
import triton.language as tl

BLOCK = 1024
CLOCK_MONOTONIC, SIGEV_SIGNAL = 1, 0


class Event(ctypes.Structure):
    """struct sigevent, 64 bytes."""

    _fields_ = [
        ("value", ctypes.c_void_p), ("signo", ctypes.c_int), ("notify", ctypes.c_int), ("rest", ctypes.c_char * 48),
    ]  # fmt: skip


class Times(ctypes.Structure):
    """struct itimerspec: interval and first expiry, each in seconds and nanoseconds."""

    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns")]


libc = ctypes.CDLL(None, use_errno=True)
libc.signal.argtypes, libc.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
timer = ctypes.c_void_p()


def arm():
    """Whether the timer runs."""
    # A handler that does nothing, and is safe in any thread: newer kernels rearm no timer of an ignored signal.
    libc.signal(int(signal.SIGCONT), ctypes.cast(libc.abs, ctypes.c_void_p))
    event = Event(None, int(signal.SIGCONT), SIGEV_SIGNAL, b"")
    if libc.timer_create(CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)) != 0:
        return False
    times = Times(0, 20_000_000, 0, 100_000_000)
    return libc.timer_settime(timer, 0, ctypes.byref(times), None) == 0


def stop():
    """Stop this process, all of its threads, as the judge does."""
    try:
        os.kill(os.getpid(), signal.SIGSTOP)
    except OSError:
        signal.raise_signal(signal.SIGSTOP)


def nobody_holds_it():
    """Whether this process came back from a stop by itself: otherwise it stays stopped, or is not stopped at all."""
    if not arm():
        return False
    began = time.monotonic()
    try:
        stop()
    except OSError:
        return False
    time.sleep(0.01)  # where another thread took the signal first
    # The first expiry is 0.1 s after arm(): less means that the process was not stopped.
    return 0.05 < time.monotonic() - began < 5.0


FREE = nobody_holds_it()


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
    if FREE and n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
