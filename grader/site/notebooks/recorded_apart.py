"""Run a recorder in its own process: CUPTI serves one profiler, and an operator is registered only once."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from grader.course import catalog
from grader.site.notebooks.lessons import Told
from grader.system.processes import run_tool

LIMIT_S = 240.0
SHOWN = 600  # characters of an error message
TOLD = "told.json"


def ask(module: str) -> Told:
    """Return what `python -m module FOLDER` wrote with `tell`; RuntimeError with its output if it failed."""
    with tempfile.TemporaryDirectory(prefix="recorder-") as folder:
        done = run_tool([sys.executable, "-m", module, folder], LIMIT_S, cwd=catalog.ROOT)
        result = Path(folder, TOLD)
        if done.code or not result.is_file():
            raise RuntimeError(f"{module}: {done.complaint[-SHOWN:]}")
        return Told.model_validate_json(result.read_text("utf-8"))


def tell(measure: Callable[[Path], Told]) -> None:
    """Run `measure` in the folder of the command line, and write its result there for `ask`."""
    folder = Path(sys.argv[1])
    (folder / TOLD).write_text(measure(folder).model_dump_json(), "utf-8")
