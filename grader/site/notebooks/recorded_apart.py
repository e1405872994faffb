"""A recorder in a process of its own: CUPTI serves one profiler at a time, and an operator has one owner."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from grader.course import catalog
from grader.site.notebooks.lessons import Told
from grader.system.processes import run_tool

LIMIT_S = 240.0
SHOWN = 600  # characters of what went wrong
TOLD = "told.json"


def ask(module: str) -> Told:
    """What `python -m module FOLDER` leaves with `tell`; RuntimeError with its last words if it does not."""
    with tempfile.TemporaryDirectory(prefix="recorder-") as folder:
        done = run_tool([sys.executable, "-m", module, folder], LIMIT_S, cwd=catalog.ROOT)
        told = Path(folder, TOLD)
        if done.code or not told.is_file():
            raise RuntimeError(f"{module}: {done.complaint[-SHOWN:]}")
        return Told.model_validate_json(told.read_text("utf-8"))


def tell(measure: Callable[[Path], Told]) -> None:
    """The other side: measure, with a folder for what comes in between, and leave there what was found."""
    folder = Path(sys.argv[1])
    (folder / TOLD).write_text(measure(folder).model_dump_json(), "utf-8")
