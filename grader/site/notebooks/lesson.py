"""The names that notebooks import: `start`, kernels by path, measurements or records, ways to show them."""

from __future__ import annotations

import platform
import tempfile
from pathlib import Path

from grader import __version__
from grader.course.catalog import ROOT
from grader.site.notebooks import kernels
from grader.site.notebooks.kernels import apart, lab, production_slice, solution
from grader.site.notebooks.records import (
    bench,
    counter,
    gpu_or_record,
    lesson_record,
    logged,
    logged_step,
    survey,
    told,
)
from grader.site.notebooks.showing import (
    BLUE,
    COLOURS,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    YELLOW,
    canvas,
    excerpt,
    folded,
    interactive,
    listing,
    say,
    shown,
    table,
)
from grader.system import gpu

__all__ = [
    "BLUE", "COLOURS", "GREEN", "ORANGE", "PURPLE", "ROOT", "SKY", "YELLOW", "apart", "bench", "canvas",
    "counter", "device", "excerpt", "folded", "gpu_or_record", "interactive", "lab", "lesson_record",
    "listing", "logged", "logged_step", "production_slice", "say", "shown", "solution", "start", "survey",
    "table", "told",
]  # fmt: skip


def start() -> None:
    """Choose the tier and print what this runtime can grade; called in the first cell of every notebook."""
    found, missing = gpu.find()
    kernels.settle(found)
    from grader.results.machine import machine
    from grader.student import doctor

    here = machine(found, missing)
    runs = f"on an {found.name}" if found else f"in Triton's interpreter on a CPU ({missing})"
    print(
        f"grader {__version__}, Python {platform.python_version()}, torch {here.torch}, triton {here.triton}"
    )
    print(f"kernels run {runs}")
    print("points that can be graded here, by `make grade`:")
    with tempfile.TemporaryDirectory(prefix="lesson-") as folder:
        for name, _, words in doctor.gradable(Path(folder), "gpu" if found else "cpu", found):
            print(f"  {name:<7}{words}")


def device() -> str:
    """Return the device for tensors: "cuda" if there is a GPU, else "cpu"."""
    return "cuda" if gpu.find()[0] else "cpu"
