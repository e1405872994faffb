"""Lines of code of a kernel, with what it takes from the files beside it: effort, as far as lines tell."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

from grader.course.todos import lines_of

_NOT_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INCLUDE = re.compile(r'^#include "(\w+\.cuh)"', re.MULTILINE)
_PROGRAM = re.compile(r"^#ifndef NO_PROGRAM\n.*?^#endif\n", re.MULTILINE | re.DOTALL)


def lines_of_code(source: str) -> int:
    """Lines with code of Python: no blank ones, no comments, no docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NOT_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node):
            lines -= set(lines_of(node.body[0]))
    return len(lines)


def lines_of_native_code(source: str) -> int:
    """The same of CUDA C++; the program that a file makes when it is compiled alone does not count."""
    bare = _COMMENT.sub("", _PROGRAM.sub("", source))
    return sum(bool(line.strip()) for line in bare.splitlines())


def files_of(path: Path) -> list[Path]:
    """A kernel's file, and what it imports or includes from beside it, at any depth."""
    found: list[Path] = []
    todo = [path]
    while todo:
        one = todo.pop()
        if one in found:
            continue
        found.append(one)
        source = one.read_text("utf-8")
        if one.suffix == ".py":
            names = [f"{name}.py" for name in sorted(_imported(source))]
        else:
            names = _INCLUDE.findall(_PROGRAM.sub("", source))
        todo += [one.parent / name for name in names if (one.parent / name).is_file()]
    return found


def lines_with_helpers(path: Path) -> int:
    """Lines of code of all these files."""
    count = {".py": lines_of_code}
    return sum(count.get(one.suffix, lines_of_native_code)(one.read_text("utf-8")) for one in files_of(path))


def _imported(source: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names
