"""Lab 4's ladder: PyTorch calls below the solution and tuned kernels above it, as arms of `make bench`."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

from grader.course import catalog

FOLDER = catalog.ROOT / "solutions" / "lab4_production_slice" / "variants"
RUNGS = {"naive": "naive.py", "tuned": "*_tuned.py"}  # the arm, and its files


class MissingError(Exception):
    """No file of this rung has the operation."""


def file_of(rung: str, function: str) -> Path | None:
    """Return the file of a rung that defines a function, or None."""
    defines = re.compile(rf"^def {re.escape(function)}\(", re.MULTILINE)
    found = sorted(FOLDER.glob(RUNGS[rung]))
    return next((path for path in found if defines.search(path.read_text("utf-8"))), None)


@functools.cache
def module_of(rung: str, function: str) -> ModuleType:
    """Import the file of a rung that defines a function; MissingError if there is none.

    The file can import what the lab gives.
    """
    path = file_of(rung, function)
    if path is None:
        raise MissingError(f"no {RUNGS[rung]} among the {FOLDER.name} of lab 4 defines {function}")
    specification = importlib.util.spec_from_file_location(f"bench_{path.stem}", path)
    if specification is None or specification.loader is None:
        raise ImportError(f"{path.name} is no Python file")
    if str(FOLDER.parent) not in sys.path:
        sys.path.append(str(FOLDER.parent))
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
