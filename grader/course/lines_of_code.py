"""Count the lines of code of a kernel and of the files that it uses, as a rough measure of effort."""

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
    """Count the lines of Python with code, without blank lines, comments and docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NOT_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node):
            lines -= set(lines_of(node.body[0]))
    return len(lines)


def lines_of_native_code(source: str) -> int:
    """Count the lines of CUDA C++ with code, without the program for compiling the file alone."""
    bare = _COMMENT.sub("", _PROGRAM.sub("", source))
    return sum(bool(line.strip()) for line in bare.splitlines())


def files_of(path: Path) -> list[Path]:
    """Return a kernel's file and all files in its folder that it imports or includes, at any depth."""
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
    """Count the lines of code of a kernel's file and of all files that it uses."""
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
