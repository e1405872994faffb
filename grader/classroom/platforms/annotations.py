"""Convert results.json to annotations of GitHub Actions: one line for each failure, at its line of the file.

A step prints them: `make export TO=annotations` and then `cat annotations.txt`. They are written from the
results, and every text is escaped, so that nothing which a submission printed is a command of its own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from grader.course.spec import Verdict
from grader.report.terminal import alike, details_of, path_of, word
from grader.results.models import MOST_BYTES, ExerciseResult, ItemResult, LabResult, Results
from grader.system.files import read_bytes
from grader.system.text import one_line

SILENT = (Verdict.PASS, Verdict.NOT_GRADED, Verdict.GRADER_FAULT)


def convert(results: Results) -> str:
    """Return the lines: a notice for each open TODO, an error for each group of failures with one message."""
    lines = [
        line
        for lab in results.labs
        for exercise in lab.exercises
        for line in _of_exercise(lab, exercise, results.source)
    ]
    return "".join(f"{line}\n" for line in dict.fromkeys(lines))


def _of_exercise(lab: LabResult, exercise: ExerciseResult, source: str) -> Iterator[str]:
    path = path_of(lab.folder, exercise.file)
    failed = [item for item in exercise.items if item.verdict not in SILENT and not item.blocked]
    for first, *_ in alike(failed, lab.folder, exercise.file):
        for todo in first.open_todos:
            yield _line("notice", path, todo.line, word(first), f"TODO {todo.number}: {todo.text}")
        if not first.open_todos:
            at = first.frames[0] if first.frames else None
            line = at.line if at else _defined_at(lab, exercise, source)
            file = at.file(path) if at else path
            yield _line("error", file, line, word(first), _message(first, lab, exercise))


def _message(item: ItemResult, lab: LabResult, exercise: ExerciseResult) -> str:
    details = item.cause or item.where or " ".join(details_of(item, lab.folder, exercise.file))
    # A crash has the same message for each exercise of its file; the name of the case would tell it again.
    return details if item.frames else f"{item.name}: {details}"


def _defined_at(lab: LabResult, exercise: ExerciseResult, source: str) -> int:
    """Return the line of the exercise's function; 0 if the file is not the graded one or lacks it."""
    elsewhere = Path(source, lab.folder, exercise.file)  # in a tree outside, as in a container
    file = elsewhere if Path(source).is_absolute() else Path(path_of(lab.folder, exercise.file, source))
    try:
        data = read_bytes(file, MOST_BYTES)
    except (OSError, ValueError):
        return 0
    found = re.search(rb"^def %b\(" % re.escape(exercise.name.encode()), data, re.MULTILINE)
    if not found or hashlib.sha256(data).hexdigest() != exercise.file_sha256:
        return 0
    return data.count(b"\n", 0, found.start()) + 1


def _line(level: str, path: str, line: int, title: str, text: str) -> str:
    """Return one workflow command: `::error file=...,line=...,title=...::text`."""
    at = f",line={line}" if line else ""
    return f"::{level} file={_property(path)}{at},title={_property(title)}::{_data(one_line(text))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
