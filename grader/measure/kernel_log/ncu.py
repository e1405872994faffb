"""Run Nsight Compute on one call of a kernel; if it cannot read counters, say why and how to allow it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.codegen import nvcc as native
from grader.measure.kernel_log.ncu_csv import kernels_in
from grader.measure.kernel_log.record import KernelCounters
from grader.system.processes import LimitError, run_tool
from grader.system.text import one_line

LAUNCHES = 16  # at most, of one call; later ones are not profiled
LIMIT_S = 900.0  # all sections take about forty passes of each kernel
PERMISSION = (
    "ncu may not read the counters of this GPU (ERR_NVGPUCTRPERM): run it as root, start the container with "
    "--cap-add=SYS_ADMIN, or load the driver with NVreg_RestrictProfilingToAdminUsers=0"
)
OPTIONS = (
    "--clock-control", "none", "--set", "full", "--csv", "--page", "raw", "--print-units", "base",
    "--print-kernel-base", "function", "--profile-from-start", "off", "--launch-count", str(LAUNCHES),
    "--target-processes", "application-only",
)  # fmt: skip


@dataclass(frozen=True)
class Profile:
    """The kernels of one call in the order of their launches, or None and why there are no counters."""

    kernels: tuple[KernelCounters, ...] | None
    missing: str = ""


def profiler() -> Path | None:
    """Find ncu on the PATH, beside nvcc, or in a CUDA toolkit; None if there is none."""
    on_path, nvcc = shutil.which("ncu"), native.compiler()
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    places = [Path(home, "bin", "ncu") for home in homes if home]
    places += [nvcc.with_name("ncu")] if nvcc else []
    places += sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)
    return Path(on_path) if on_path else next((path for path in places if path.is_file()), None)


def profile(words: Sequence[str], tool: Path | None, run: Callable | None = None) -> Profile:
    """Profile the call that profiled.py makes with these words; errors of ncu are returned, not raised."""
    if tool is None:
        return Profile(None, "ncu was not found: install Nsight Compute, which is part of the CUDA toolkit")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        program = [sys.executable, "-m", "grader.measure.kernel_log.profiled"]
        command = [str(tool), *OPTIONS, "--log-file", str(log), *program]
        # ncu's lock file in a shared /tmp may belong to another user; its number format follows the locale.
        environment = os.environ | {"TMPDIR": folder, "LC_ALL": "C.UTF-8"}
        code, printed = (run or _run)([*command, *words], environment)
        said = log.read_text("utf-8", errors="replace") if log.is_file() else ""
    kernels = list(kernels_in(said)) or list(kernels_in(printed))
    if kernels:
        return Profile(tuple(kernels))
    return Profile(None, why_none(f"{said}\n{printed}", code))


def _run(command: Sequence[str], environment: dict[str, str]) -> tuple[int, str]:
    """Run ncu and return exit code and output; processes that it started end with it."""
    try:
        done = run_tool(command, LIMIT_S, merged=True, env=environment, own_session=True)
    except LimitError:
        return 124, f"ncu did not end within {LIMIT_S:.0f} s"
    return done.code, done.text


def why_none(said: str, code: int) -> str:
    """Say in one line why ncu returned no counters."""
    if "ERR_NVGPUCTRPERM" in said:
        return PERMISSION
    if "No kernels were profiled" in said and not code:
        return "ncu saw no kernel in the call"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # ncu itself reports only that the application failed; the application's error is its last line.
    own = [line.removeprefix("==ERROR== ") for line in lines if line.startswith("==ERROR== ")]
    other = [line for line in lines if not line.startswith("==")]
    last = other[-1] if other and (not own or "application" in own[0]) else (own or ["no output"])[0]
    return one_line(f"ncu exited with code {code}: {last}")
