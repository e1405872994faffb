"""What decides a result, as hashes: where none has changed, nothing is graded again."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path

from grader import catalog
from grader.batch.models import Intake

# Folders of the grader that have no part in a result: a mended page does not have a class graded again.
NOT_GRADING = (
    "tests",
    "batch",
    "gradebook",
    "platforms",
    "release",
    "ci",
    "page",
    "watch",
    "figures",
    "notebooks",
)


def of_files(root: Path, files: list[Path]) -> str:
    """One hash of several files and their names."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@lru_cache
def grader() -> str:
    """Of the modules that grade."""
    root = catalog.ROOT / "grader"
    files = [p for p in root.rglob("*.py") if p.relative_to(root).parts[0] not in NOT_GRADING]
    return of_files(root, files)


@lru_cache
def lab(unit: str) -> str:
    """Of what the course gives for a unit: lab.py, and what a student's files may import or include."""
    entries = catalog.capstone() if unit == catalog.CAPSTONE.name else catalog.find()
    mine = [entry for entry in entries if unit in (entry.folder.name, catalog.CAPSTONE.name)]
    return of_files(catalog.ROOT, [path for entry in mine for path in (entry.lab_file, *entry.given)])


def files_of(intake: Intake, unit: str) -> dict[str, str]:
    """The hashes of a student's files of a unit, by path below files/."""
    return {one.path: one.sha256 for one in intake.files if one.path.startswith(f"{unit}/")}


def of_task(**parts) -> str:
    """Of all that decides the result of one grading."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
