"""Record what Nsight Compute prints about one call of lab 4's softmax and one of lab 3's matmul."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from grader.course import catalog
from grader.measure.kernel_log import ncu
from grader.site.notebooks.lessons import Told
from grader.system.processes import run_tool

SECTIONS = ("LaunchStats", "Occupancy", "SpeedOfLight", "MemoryWorkloadAnalysis", "WarpStateStats")
# An operation of the bench, its file below solutions/, a size.
CALLS = {
    "lab 4 softmax": ("fused_softmax_forward", "lab4_production_slice/softmax.py", "rows=16384,cols=8192"),
    "lab 3 matmul": ("matmul", "lab3_autotuned_matmul/autotuned_matmul.py", "m=4096,n=4096,k=4096"),
}
LIMIT_S = 200.0
SHOWN = 600  # characters of an error message


def record() -> Told:
    """Return the page of each call by its name; RuntimeError if ncu is missing or counts nothing."""
    tool = ncu.profiler()
    if tool is None:
        raise RuntimeError("ncu was not found: install Nsight Compute, a part of the CUDA toolkit")
    options = [word for section in SECTIONS for word in ("--section", section)]
    options += ["--clock-control", "none", "--print-kernel-base", "function", "--profile-from-start", "off"]
    pages = {name: _page([str(tool), *options], *call) for name, call in CALLS.items()}
    return Told(command=" ".join(["ncu", *options, "python YOUR_SCRIPT.py"]), texts=pages)


def _page(command: list[str], op: str, file: str, size: str) -> str:
    with tempfile.TemporaryDirectory(prefix="ncu-") as folder:
        log = Path(folder, "page.txt")
        # The lock file of ncu in a shared /tmp may be another user's; its number format follows the locale.
        environment = os.environ | {"TMPDIR": folder, "LC_ALL": "C.UTF-8"}
        done = run_tool(
            [*command, "--target-processes", "application-only", "--log-file", str(log),
             sys.executable, "-m", "grader.measure.kernel_log.profiled", "--op", op,
             "--file", f"solutions/{file}", "--size", size, "--folder", folder],
            LIMIT_S, cwd=catalog.ROOT, env=environment,
        )  # fmt: skip
        page = log.read_text("utf-8", errors="replace") if log.is_file() else ""
    return page_of(page) or _failed(op, page or done.complaint)


def page_of(said: str) -> str:
    """Return the part of ncu's output about kernels, without progress messages and process ids."""
    lines = [line.rstrip() for line in said.splitlines() if not line.startswith(("==", "["))]
    return "\n".join(lines).strip("\n") if any("Section:" in line for line in lines) else ""


def _failed(op: str, said: str) -> str:
    raise RuntimeError(f"ncu counted nothing for {op}: {said.strip()[-SHOWN:]}")
