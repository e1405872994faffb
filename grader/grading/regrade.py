"""Grade the same files repeatedly into one record, in a new process each time."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from grader.grading.options import RunOptions, command_of
from grader.results import reading
from grader.results.models import Results
from grader.system.files import replace
from grader.system.processes import run_tool


class RegradeError(Exception):
    """A grading failed, or the record does not match the files or the command."""


def grade_again(options: RunOptions, record: Path, times: int) -> Iterator[int]:
    """Grade with `options` until `record` has `times` runs; yield the number of each run before it starts.

    An existing record is continued if its runs had the same command and graded the files that are in the tree
    now. RegradeError if not, or if a grading ends with an error.
    """
    always = ("source",)  # every record names the tree
    command, source = command_of(options.arguments(always)), Path(options.source)
    # Stored runs are kept unchanged, whichever version wrote them.
    stored = json.loads(record.read_text("utf-8")) if record.is_file() else []
    try:
        runs = reading.parse_runs(json.dumps(stored))
    except ValueError:
        raise RegradeError(f"{record} is not a record of this grader's runs: move it away") from None
    if any(run.command != command or not _same_files(run, source) for run in runs):
        raise RegradeError(f"{record} is from other files or another command: move it away")
    for number in range(len(stored) + 1, times + 1):
        yield number
        with tempfile.TemporaryDirectory() as scratch:
            asked = dataclasses.replace(options, results=Path(scratch)).arguments(always)
            done = run_tool([sys.executable, "-m", "grader", *asked], None)
            if done.code:
                raise RegradeError(f"grading {number} of {times} failed: {done.complaint[-500:]}")
            stored.append(json.loads((Path(scratch) / "results.json").read_text("utf-8")))
        replace(record, json.dumps(stored))  # after each run, so that none is lost


def _same_files(run: Results, source: Path) -> bool:
    graded = {
        source / lab.folder / exercise.file: exercise.file_sha256
        for lab in run.labs
        for exercise in lab.exercises
    }
    return all(
        file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == digest
        for file, digest in graded.items()
    )
