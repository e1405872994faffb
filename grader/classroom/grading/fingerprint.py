"""Hashes of everything that affects a result; a unit is graded again only when one changes."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path

from grader.classroom.records import Intake
from grader.course import catalog

# Folders of the grader that do not affect a result: fixing a page must not regrade a class.
NOT_GRADING = ("tests", "classroom", "report/page", "student", "site")


def of_files(root: Path, files: list[Path]) -> str:
    """Return one hash of the names and contents of several files."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@lru_cache
def grader() -> str:
    """Return the hash of the modules that affect a result."""
    root = catalog.ROOT / "grader"
    left_out = tuple(f"{name}/" for name in NOT_GRADING)
    files = [p for p in root.rglob("*.py") if not p.relative_to(root).as_posix().startswith(left_out)]
    return of_files(root, files)


@lru_cache
def lab(unit: str) -> str:
    """Return the hash of a unit's lab.py and of the files that a student's files may import or include."""
    entries = catalog.capstone() if unit == catalog.CAPSTONE.name else catalog.find()
    selected = [entry for entry in entries if unit in (entry.folder.name, catalog.CAPSTONE.name)]
    return of_files(catalog.ROOT, [path for entry in selected for path in (entry.lab_file, *entry.given)])


def files_of(intake: Intake, unit: str) -> dict[str, str]:
    """Return the hashes of a student's files of a unit, by path relative to files/."""
    return {one.path: one.sha256 for one in intake.files if one.path.startswith(f"{unit}/")}


def of_task(**parts) -> str:
    """Return the hash of everything that affects the result of one grading."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
