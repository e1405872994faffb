"""Source lines that a figure shows, found by their text, with line numbers."""

from __future__ import annotations

import ast
import re
from pathlib import Path

# The topic of a line is the first pattern that matches; the names are colours of the palette.
TOPICS = (
    ("compute", re.compile(r"\btl\.dot\(|\bwgmma<")),
    ("load", re.compile(r"\btl\.load\(|_desc\.load\(|tma_load\(|barrier_expect\(")),
    ("store", re.compile(r"\btl\.store\(|_desc\.store\(|tma_store\(|store_matrices\(")),
)


def is_mark(line: str) -> bool:
    """Whether a line only marks a task, which a reader of the finished source does not need."""
    return re.match(r"\s*# (?:BEGIN|END) ", line) is not None


def topic(line: str) -> str:
    """Return `load`, `compute`, `store`, or an empty string."""
    return next((name for name, pattern in TOPICS if pattern.search(line)), "")


def excerpt(path: Path, begin: str, end: str) -> list[dict]:
    """Return the lines from the first that begins with `begin` to the next that begins with `end`, dedented.

    ValueError if there are none: the source was changed, and the excerpt must be chosen again.
    """
    lines = path.read_text("utf-8").splitlines()
    starts = [at for at, line in enumerate(lines) if line.strip().startswith(begin)]
    ends = [at for at, line in enumerate(lines) if line.strip().startswith(end)]
    if not starts or not any(at >= starts[0] for at in ends):
        raise ValueError(f"{path.name} has no lines from {begin!r} to {end!r}; choose the excerpt again")
    last = next(at for at in ends if at >= starts[0])
    found = _numbered(lines, starts[0], last)
    left = min(
        len(one["text"]) - len(one["text"].lstrip()) for one in found if one["text"] and one["text"][0] != "#"
    )
    return [one | {"text": one["text"][left if one["text"][:1] != "#" else 0 :]} for one in found]


def definition(path: Path, name: str) -> list[dict]:
    """Return the lines of a function with decorators but no docstring, or of the assignment to a name.

    KeyError if the file does not define the name.
    """
    source = path.read_text("utf-8")
    for node in ast.parse(source).body:
        named = isinstance(node, ast.FunctionDef) and node.name == name
        given = isinstance(node, ast.Assign) and any(getattr(one, "id", "") == name for one in node.targets)
        if named or given:
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
            words = node.body[0] if named and ast.get_docstring(node) else None
            skipped = range(words.lineno, words.end_lineno + 1) if words else ()
            found = _numbered(source.splitlines(), first - 1, node.end_lineno - 1)
            return [one for one in found if one["number"] not in skipped]
    raise KeyError(f"{path.name} has no {name}")


def _numbered(lines: list[str], first: int, last: int) -> list[dict]:
    return [
        {"number": at + 1, "text": lines[at], "topic": topic(lines[at])}
        for at in range(first, last + 1)
        if not is_mark(lines[at])
    ]
