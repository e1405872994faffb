"""A recorder in a process of its own: CUPTI serves one profiler at a time, and an operator has one owner."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from grader import catalog
from grader.notebooks.lessons import Told

LIMIT_S = 240.0
SHOWN = 600  # characters of what went wrong
TOLD = "told.json"


def ask(module: str) -> Told:
    """What `python -m module FOLDER` leaves with `tell`; RuntimeError with its last words if it does not."""
    with tempfile.TemporaryDirectory(prefix="recorder-") as folder:
        done = subprocess.run(
            [sys.executable, "-m", module, folder],
            cwd=catalog.ROOT, capture_output=True, text=True, timeout=LIMIT_S,
            check=False,
        )  # fmt: skip
        told = Path(folder, TOLD)
        if done.returncode or not told.is_file():
            raise RuntimeError(f"{module}: {done.stderr.strip()[-SHOWN:]}")
        return Told.model_validate_json(told.read_text("utf-8"))


def tell(measure: Callable[[Path], Told]) -> None:
    """The other side: measure, with a folder for what comes in between, and leave there what was found."""
    folder = Path(sys.argv[1])
    (folder / TOLD).write_text(measure(folder).model_dump_json(), "utf-8")
