"""Wait between two gradings until no other process uses the GPU."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from grader.system.files import replace

MOST_BYTES = 1 << 30  # memory that a driver may use itself
MOST_PERCENT = 15  # utilization of an idle GPU, at most
SAMPLES, PAUSE_S = 3, 0.5  # together longer than the second that a driver averages over
ASK_AGAIN_S = 5.0
PATIENCE_S = 2 * 3600.0


def wait(note: Path, needed: Callable[[], bool], by: Callable[[], str] | None = None) -> bool:
    """Wait until no other process uses this worker's GPU; False on timeout or when no longer `needed`.

    While waiting, the file `note` says who uses the GPU, for the command to show.
    """
    by = by or used_by
    deadline = time.monotonic() + PATIENCE_S
    try:
        while True:
            words = by()
            if not words:
                return True
            if time.monotonic() > deadline or not needed():
                return False
            with contextlib.suppress(OSError):  # a failed note must not fail the grading
                note.parent.mkdir(parents=True, exist_ok=True)
                replace(note, words)
            time.sleep(ASK_AGAIN_S)
    finally:
        note.unlink(missing_ok=True)


def used_by() -> str:
    """Describe who uses the GPU that CUDA would select; empty if it is idle or NVML cannot tell."""
    try:
        import pynvml

        from grader.system.gpu import handle

        device = handle()
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
        if processes:
            return "in use by process " + ", ".join(str(one.pid) for one in processes[:4])
        memory = pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)
        used = memory.used - getattr(memory, "reserved", 0)
        if used > MOST_BYTES:  # by a process of another container, which NVML does not list
            return f"{used >> 20} MiB of its memory are in use"
        if all(_busy(pynvml, device) for _ in range(SAMPLES)):
            return "in use by a process that NVML does not list"
    except Exception:  # without an answer from NVML there is no reason to wait
        return ""
    return ""


def _busy(pynvml, device) -> bool:
    time.sleep(PAUSE_S)
    return pynvml.nvmlDeviceGetUtilizationRates(device).gpu > MOST_PERCENT
