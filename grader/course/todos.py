"""Find the open TODOs in a student's file, and those that a function depends on; imports no torch."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

_TASK = re.compile(r"TODO (\d+): (.+)")
_ERROR = re.compile(r'\s*#\s*error\s+"?TODO (\d+): ([^"]+)"?\s*$')
_REGION = re.compile(r"\s*(?:#|//) BEGIN TODO (\d+):")
_REGION_END = re.compile(r"\s*(?:#|//) END TODO (\d+)\s*$")
_EMPTY = {ast.Pass, ast.Expr, ast.Constant}  # what `pass`, `...` and a docstring consist of


@dataclass(frozen=True)
class Todo:
    """An open task: its number (0: a function without a body), its text without the size, its line from 1.

    A placeholder with `in_kernel` fails only a launch that compiles its line, which a branch on a constexpr
    may leave out.
    """

    number: int
    text: str
    line: int
    in_kernel: bool = field(default=False, compare=False)


def open_todos(source: str, tree: ast.Module | None = None) -> tuple[Todo, ...]:
    """Return the TODOs whose placeholders are still in a file, in order; none if it does not parse."""
    return _distinct(placeholders_in(source, tree or parse(source)))


def open_errors(source: str) -> tuple[Todo, ...]:
    """Return the open TODOs of a CUDA C++ file, whose placeholders are #error directives."""
    lines = source.split("\n")
    found = ((line, _ERROR.match(text)) for line, text in enumerate(lines, start=1))
    return _distinct([_todo(lines, task, range(line, line + 1)) for line, task in found if task])


def regions_in(source: str) -> frozenset[int]:
    """Return the numbers of a file's TODOs, open or done, from the comments in which they begin."""
    return frozenset(int(task[1]) for line in source.split("\n") if (task := _REGION.match(line)))


def lines_of_region(lines: Sequence[str], number: int) -> range:
    """Return the numbers, from 1, of the lines between the comments in which a TODO begins and ends."""
    begin = end = 0
    for at, line in enumerate(lines, start=1):
        if (task := _REGION.match(line)) and int(task[1]) == number:
            begin = at + 1
        elif begin and not end and (task := _REGION_END.match(line)) and int(task[1]) == number:
            end = at
    return range(begin, end)


def open_todos_of(source: str, function: str, tree: ast.Module | None = None) -> tuple[Todo, ...]:
    """Return the open TODOs that `function` depends on through the names it uses; 0 for an empty body."""
    tree = tree or parse(source)
    binding: dict[str, list[ast.stmt]] = {}
    for node in tree.body:
        for name in bound_names(node):
            binding.setdefault(name, []).append(node)
    reached: list[ast.stmt] = []
    names, known, taken = [function], {function}, set[int]()
    for name in names:  # the list grows in the loop
        for node in binding.pop(name, ()):
            if id(node) in taken:  # one statement may bind several names
                continue
            taken.add(id(node))
            reached.append(node)
            further = _used(node) - known
            known |= further
            names += further
    lines = {line for node in reached for line in lines_of(node)}
    todos = [todo for todo in placeholders_in(source, tree) if todo.line in lines]
    for node in reached:
        if not isinstance(node, ast.FunctionDef) or node.name != function:
            continue
        if {type(part) for statement in node.body for part in ast.walk(statement)} <= _EMPTY:
            todos.append(Todo(0, f"{function} has no body yet", node.lineno))
    return _distinct(todos)


def parse(source: str) -> ast.Module:
    """Return the syntax tree, empty if the source does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # running the file reports an invalid escape, once
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deeply
        return ast.Module(body=[], type_ignores=[])


def placeholders_in(source: str, tree: ast.Module) -> list[Todo]:
    """Return every placeholder, in the order of the tree; a region that defines several names has several."""
    todos = []
    lines = source.split("\n")
    for node in ast.walk(tree):
        in_kernel = False
        match node:
            case ast.Raise(ast.Call(ast.Name("NotImplementedError"), [ast.Constant(str(text))])):
                pass
            case ast.Call(ast.Attribute(_, "static_assert"), [ast.Constant(False), ast.Constant(str(text))]):
                in_kernel = True
            case ast.Assign(value=ast.Constant(None), col_offset=0, end_lineno=int(line)):
                text = lines[line - 1].partition("# ")[2].rstrip()
            case _:
                continue
        if task := _TASK.fullmatch(text):
            todos.append(_todo(lines, task, lines_of(node), in_kernel))
    return todos


def _todo(lines: Sequence[str], task: re.Match[str], placeholder: range, in_kernel: bool = False) -> Todo:
    """Return a task; where its lines are written, the text says what is left to do."""
    number, text, line = int(task[1]), task[2], placeholder.start
    if _is_written(lines, number, placeholder):
        text = f"{text}; your lines are there: delete line {line}"
    return Todo(number, text, line, in_kernel)


def _is_written(lines: Sequence[str], number: int, placeholder: range) -> bool:
    """Whether there is other code between the comments around a placeholder. Line numbers are from 1."""
    region = lines_of_region(lines, number)
    return placeholder.start in region and any(
        _is_code(lines[at - 1]) for at in region if at not in placeholder
    )


def _is_code(line: str) -> bool:
    """Whether a line of a region is neither blank, a comment nor a placeholder."""
    text = line.strip()
    return bool(text) and not text.startswith(("# ", "//")) and text != "#" and not _TASK.search(text)


def _distinct(todos: list[Todo]) -> tuple[Todo, ...]:
    """Return the first placeholder of each number, sorted by number."""
    first = {todo.number: todo for todo in sorted(todos, key=lambda todo: -todo.line)}
    return tuple(first[number] for number in sorted(first))


def bound_names(statement: ast.stmt) -> list[str]:
    """Return the names that a statement defines in its own scope."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return [statement.name]
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", statement)]
    nodes = [node for target in targets for node in ast.walk(target)]
    return [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


def lines_of(node: ast.stmt | ast.expr) -> range:
    """Return the line numbers of a statement, from 1."""
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _used(statement: ast.AST) -> set[str]:
    """Return the names that a statement uses from outside; in a class separately for each method."""
    if isinstance(statement, ast.ClassDef):
        return set().union(*map(_used, ast.iter_child_nodes(statement)))
    nodes = list(ast.walk(statement))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return {node.id for node in names} - own - {node.arg for node in nodes if isinstance(node, ast.arg)}
