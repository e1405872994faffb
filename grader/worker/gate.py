"""A gate on a GPU: what a worker has queued waits for a word that only the judge can write.

Two pages of host memory that the GPU reaches belong to each worker process.

1. The worker's stream waits until the gate's word has reached a ticket (`cuStreamWaitValue32`). Its calls
   are queued behind that. Then its stream writes the ticket to the word `done` (`cuStreamWriteValue32`).
2. The judge writes the inputs that are graded. Its stream waits for `done`, and behind that its samples are
   queued. It opens the gate with a store to the page, and the clock runs until the samples are taken.

Opened by the judge's stream instead, and timed by events of the GPU, the ratios of rounds vary several times
as much: the GPU then changes contexts at the wrong moment.

The gate's page is sealed (F_SEAL_FUTURE_WRITE): the judge's mapping can be written, every later one only
read. The worker registers it read-only, so its kernels and streams cannot write it either. `done` can be
written early by a worker. The judge looks at it before it opens the gate, and what it samples afterwards is
compared.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os

from grader.system import cuda_driver
from grader.worker.session import Session

BYTES = mmap.PAGESIZE
DEVICE_MAP, READ_ONLY = 2, 8  # flags of cuMemHostRegister
AT_LEAST = 0  # CU_STREAM_WAIT_VALUE_GEQ
DEFAULT_STREAM = 0
ADD_SEALS, SEAL, SHRINK, GROW, FUTURE_WRITE = 1033, 1, 2, 4, 16


class _Page:
    """One page of a file in memory, mapped here and registered for the GPU; holds one 32-bit word."""

    def __init__(self, descriptor: int, writable: bool):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        at = libc.mmap(None, ctypes.c_size_t(BYTES), access, mmap.MAP_SHARED, descriptor, ctypes.c_long(0))
        if at is None or at == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "a page of the gate could not be mapped")
        self._at = ctypes.c_void_p(at)
        self._word = ctypes.c_uint32.from_address(at)
        flags = ctypes.c_uint(DEVICE_MAP if writable else DEVICE_MAP | READ_ONLY)
        cuda_driver.call("cuMemHostRegister_v2", self._at, ctypes.c_size_t(BYTES), flags)
        device = ctypes.c_uint64()
        cuda_driver.call("cuMemHostGetDevicePointer_v2", ctypes.byref(device), self._at, ctypes.c_uint(0))
        self._device = device

    @property
    def word(self) -> int:
        return self._word.value

    @word.setter
    def word(self, value: int) -> None:
        self._word.value = value

    def wait(self, value: int) -> None:
        """Make the default stream wait until the word is at least `value`."""
        self._queue("cuStreamWaitValue32_v2", value)

    def write(self, value: int) -> None:
        """Make the default stream write `value`, after all work that was queued before."""
        self._queue("cuStreamWriteValue32_v2", value)

    def _queue(self, function: str, value: int) -> None:
        stream, number = ctypes.c_void_p(DEFAULT_STREAM), ctypes.c_uint32(value)
        cuda_driver.call(function, stream, self._device, number, ctypes.c_uint(AT_LEAST))

    def close(self) -> None:
        cuda_driver.call("cuMemHostUnregister", self._at)
        ctypes.CDLL(None).munmap(self._at, ctypes.c_size_t(BYTES))


class Gate:
    """The judge's end. Tickets are counted from 1; a new gate is shut."""

    def __init__(self) -> None:
        self.descriptors = tuple(
            os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING) for name in ("gate", "done")
        )
        for descriptor in self.descriptors:
            os.ftruncate(descriptor, BYTES)
        self._gate, self._done = (_Page(descriptor, writable=True) for descriptor in self.descriptors)
        fcntl.fcntl(self.descriptors[0], ADD_SEALS, SEAL | SHRINK | GROW | FUTURE_WRITE)
        fcntl.fcntl(self.descriptors[1], ADD_SEALS, SEAL | SHRINK | GROW)
        self.ticket = 0

    def next_ticket(self) -> int:
        """Return a ticket for which the gate is shut."""
        self.ticket += 1
        return self.ticket

    def open(self) -> None:
        """Let everything pass that waits for the last ticket."""
        self._gate.word = self.ticket

    @property
    def is_done(self) -> bool:
        """Whether the worker's stream has written the last ticket, or any worker code a higher number."""
        return self._done.word >= self.ticket

    def wait_for_done(self) -> None:
        """Make this process's default stream wait until the worker's has finished."""
        self._done.wait(self.ticket)

    def give_up(self) -> None:
        """End the wait of this process's stream, because the worker's will not finish."""
        self._done.word = self.ticket

    def close(self) -> None:
        """Unmap the pages; no stream may wait for them any more."""
        for page in (self._gate, self._done):
            page.close()
        for descriptor in self.descriptors:
            os.close(descriptor)


class Queue:
    """The worker's end."""

    def __init__(self, gate: int, done: int):
        self._gate, self._done = _Page(gate, writable=False), _Page(done, writable=True)

    def begin(self, ticket: int) -> None:
        """Make the default stream wait for the gate."""
        self._gate.wait(ticket)

    def end(self, ticket: int) -> None:
        """Make the default stream say that all of its work is done."""
        self._done.write(ticket)


def missing(session: Session) -> str:
    """Return why a session's GPU has no gate, or "" if it has one; tried once. Uses the current context."""
    if session.no_gate is None:
        session.no_gate = _why_none()
    return session.no_gate


def _why_none() -> str:
    if cuda_driver.attribute(cuda_driver.MPS_ENABLED):
        return "the GPU is shared by MPS"
    if not cuda_driver.attribute(cuda_driver.HOST_REGISTER_SUPPORTED):
        return "this GPU cannot register host memory"
    if not cuda_driver.attribute(cuda_driver.READ_ONLY_HOST_REGISTER_SUPPORTED):
        return "this GPU cannot register host memory as read-only"
    try:
        gate = Gate()
        try:
            gate.next_ticket()
            gate.open()
            gate.give_up()
            gate._gate.wait(gate.ticket)
            gate._done.write(gate.ticket)
            gate.wait_for_done()
            cuda_driver.call("cuCtxSynchronize")
        finally:
            gate.close()
    except (RuntimeError, OSError) as error:
        return f"stream memory operations: {error}"
    return ""
