"""Grade the same files again and again into one record, in a new process each time."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from grader.files import replace


class RegradeError(Exception):
    """A grading failed, or the record is of something else."""


def grade_again(arguments: list[str], command: str, source: Path, record: Path, times: int) -> Iterator[int]:
    """Grade with `python -m grader arguments` until `record` holds `times` runs; yields their numbers.

    A record begun earlier is gone on with where its runs say `command` and graded the files that lie below
    `source` now. RegradeError where they did not, or where a grading ends with an error.
    """
    runs = json.loads(record.read_text("utf-8")) if record.is_file() else []
    if any(run["command"] != command or not _same_files(run, source) for run in runs):
        raise RegradeError(f"{record} is of other files or another command: move it away")
    for number in range(len(runs) + 1, times + 1):
        yield number
        with tempfile.TemporaryDirectory() as scratch:
            grade = [sys.executable, "-m", "grader", *arguments, "--results", scratch]
            done = subprocess.run(grade, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RegradeError(f"grading {number} of {times} failed: {done.stderr.strip()[-500:]}")
            runs.append(json.loads((Path(scratch) / "results.json").read_text("utf-8")))
        replace(record, json.dumps(runs))  # after each: what is measured is not lost


def _same_files(run: dict, source: Path) -> bool:
    graded = {
        source / lab["folder"] / exercise["file"]: exercise["file_sha256"]
        for lab in run["labs"]
        for exercise in lab["exercises"]
    }
    return all(
        file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == digest
        for file, digest in graded.items()
    )
