"""Whether somebody else uses a GPU, asked between two gradings, when nobody of ours does."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from grader.files import replace

MOST_BYTES = 1 << 30  # that a driver holds for itself, and no more
MOST_PERCENT = 15  # of time with a kernel at work
SAMPLES, PAUSE_S = 3, 0.5  # longer together than the second over which a driver counts
ASK_AGAIN_S = 5.0
PATIENCE_S = 2 * 3600.0


def wait(note: Path, wanted: Callable[[], bool], by: Callable[[], str] | None = None) -> bool:
    """Wait until nobody else uses this worker's GPU; False where that took too long or is no longer `wanted`.

    Meanwhile `note` says who does, for the command to show.
    """
    by = by or used_by
    deadline = time.monotonic() + PATIENCE_S
    try:
        while True:
            words = by()
            if not words:
                return True
            if time.monotonic() > deadline or not wanted():
                return False
            with contextlib.suppress(OSError):  # a note is not worth a grading
                note.parent.mkdir(parents=True, exist_ok=True)
                replace(note, words)
            time.sleep(ASK_AGAIN_S)
    finally:
        note.unlink(missing_ok=True)


def used_by() -> str:
    """Who uses the GPU that CUDA would take here, in words; empty where nobody does, or NVML does not say."""
    try:
        import pynvml

        from grader.gpu import handle

        device = handle()
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
        if processes:
            return "in use by process " + ", ".join(str(one.pid) for one in processes[:4])
        memory = pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)
        held = memory.used - getattr(memory, "reserved", 0)
        if held > MOST_BYTES:  # by a process of another container, which NVML does not list
            return f"{held >> 20} MiB of its memory are in use"
        if all(_busy(pynvml, device) for _ in range(SAMPLES)):
            return "it is at work, nobody says for whom"
    except Exception:  # whatever NVML cannot tell is no reason to wait
        return ""
    return ""


def _busy(pynvml, device) -> bool:
    time.sleep(PAUSE_S)
    return pynvml.nvmlDeviceGetUtilizationRates(device).gpu > MOST_PERCENT
