"""Find the files an exercise depends on: its own, those it imports or includes, and its lab.py."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from grader.course.catalog import Entry
from grader.course.spec import Document, Exercise
from grader.course.todos import parse

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def sources_of(entry: Entry, exercise: Exercise | Document, source: Path) -> tuple[Path, ...]:
    """Return the student's file, then all other files that can change its verdict, sorted by path."""
    file = entry.submission(source, exercise)
    given = {path.stem: path for path in entry.given if path.suffix == ".py"}
    found, open_files = {file}, [file]
    while open_files:
        path = open_files.pop()
        for other in _needs(path, given):
            if other not in found:
                found.add(other)
                open_files.append(other)
    return (file, *sorted((found - {file}) | {entry.lab_file}))


def _needs(path: Path, given: dict[str, Path]) -> Iterator[Path]:
    """Yield existing files that this one imports or includes; a given module takes precedence by name."""
    try:
        text = path.read_text("utf-8", errors="replace") if path.is_file() else ""
    except OSError:
        return
    if path.suffix != ".py":
        for name in _INCLUDE.findall(text) if path.suffix in (".cu", ".cuh") else ():
            if (path.parent / name).is_file():
                yield (path.parent / name).resolve()
        return
    for node in ast.walk(parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            module = given.get(name.partition(".")[0], path.with_name(f"{name.partition('.')[0]}.py"))
            if module.is_file():
                yield module
