"""Check the GPU, its driver and torch's view of both, as rows for `make doctor`."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Iterator

from grader.course.items import SPEED, Item
from grader.judge.run import SET_SHARE
from grader.setup.steps import numbers
from grader.system.gpu import ClockReader, Gpu, handle

Row = tuple[str, str, str]  # what was checked; ok, note, BROKEN or nothing; what was found


def why_none(missing: str) -> Row:
    """Return the row for a machine on which NVML finds no GPU."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None and "driver" not in missing.lower():
        missing = f"CUDA_VISIBLE_DEVICES={chosen!r} matches no GPU of this machine: {missing}"
    elif "microsoft" in platform.release().lower():
        missing += "; under WSL2, install the driver in Windows, then run `wsl --shutdown`"
    return "none", "", missing


def look_at(found: Gpu) -> Iterator[Row]:
    """Yield rows on the GPU and on everything that makes timings on it unreliable."""
    memory = f"{found.memory_bytes / 2**30:.0f} GB"
    yield "gpu", "ok", f"{found.name}, sm_{found.capability}, {memory}, driver {found.driver}"
    if found.capability < 80:
        yield "tl.dot", "note", "Triton uses no tensor cores on this GPU: only low speed is possible"
    if found.mig:
        yield (
            "MIG",
            "note",
            "this is a slice of a GPU: work on the other slices changes its clock, so timings may be noisy",
        )
    if pids := _other_processes():
        yield "busy", "note", f"processes {pids} use this GPU: stop them before you grade speed"
    clocks = ClockReader()
    clocks.sample()
    speed = f"{clocks.samples.sm_mhz[-1]} of {found.max_sm_mhz} MHz" if clocks.samples.sm_mhz else ""
    yield (
        "clocks",
        "ok" if speed else "note",
        speed or "NVML reports none: the grader cannot see it if the GPU throttles",
    )
    yield "torch", *_cuda(found)


def _other_processes() -> str:
    import pynvml

    try:
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle())
    except pynvml.NVMLError:
        return ""  # WSL2 and some containers do not report them
    return ", ".join(str(process.pid) for process in running if process.pid != os.getpid())


def _cuda(found: Gpu) -> tuple[str, str]:
    """Return whether torch can use the GPU that NVML sees, and if not, why."""
    import pynvml
    import torch

    built_for = torch.version.cuda
    if built_for is None:
        return "BROKEN", "a build without CUDA: run `make clean`, then `make setup` to install one with CUDA"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if torch.cuda.is_available():
            try:
                return "ok", f"built for CUDA {built_for}, {free_bytes() / 2**30:.1f} GB of GPU memory free"
            except RuntimeError as error:  # no memory for a context, or the GPU is in exclusive mode
                return "BROKEN", str(error)
    newest = divmod(pynvml.nvmlSystemGetCudaDriverVersion(), 1000)
    newest = [newest[0], newest[1] // 10]
    if newest < numbers(built_for):
        supported = f"{newest[0]}.{newest[1]}"
        words = f"driver {found.driver} supports CUDA up to {supported}, this torch needs {built_for}"
        return "BROKEN", f"{words}: update the driver, or install a torch for an older CUDA"
    return "BROKEN", str(said[-1].message) if said else "the driver sees a GPU, but torch does not"


def free_bytes() -> int:
    """Return the free memory of the GPU, in bytes."""
    import torch

    return torch.cuda.mem_get_info()[0]


def too_large(item: Item) -> str:
    """Return why a shape cannot be timed on this GPU now, or an empty text if it can."""
    from grader.judge.shapes import fit
    from grader.judge.speed import FEWEST_CALLS

    if item.kind != SPEED or fit(item.exercise, item.case, free_bytes() // SET_SHARE, FEWEST_CALLS):
        return ""
    return "too little GPU memory is free"
