"""The lines of a file that make what a function returns: read from its text, through its own helpers."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from grader.results.findings import Frame

MOST_DEEP = 8  # assignments and helpers that are followed
ALWAYS_CONTIGUOUS = {"empty", "zeros", "ones", "full", "new_empty", "new_zeros", "new_ones", "contiguous"}


class Origin(NamedTuple):
    """The expression that makes a value, or a parameter of the function that the value is; and its line.

    `where_none` says that this is so only where another parameter, such as `out`, is None.
    """

    node: ast.expr
    frame: Frame
    parameter: str = ""
    where_none: bool = False

    @property
    def is_always_contiguous(self) -> bool:
        """Return whether the expression is a call that gives contiguous tensors only."""
        called = self.node.func if isinstance(self.node, ast.Call) else None
        name = called.attr if isinstance(called, ast.Attribute) else ""
        return name in ALWAYS_CONTIGUOUS


def origins(text: str, function: str, which: int = 0) -> list[Origin]:
    """Return what makes the value that a function returns, or that with this number of a tuple.

    Names are followed to what is assigned to them, and calls of the file's own functions to what they return.
    A parameter of the function is an origin as well, with the line where its value gets the name that is
    returned. Empty if the file is no Python, or has no such function.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    own = functions.get(function)
    if own is None:
        return []
    followed = _Followed(text.splitlines(), functions, own)
    return list({one.node: one for one in followed.returned(own, which)}.values())


class _Followed:
    """Follows values through the functions of a file; parameters only those of the one `asked` about."""

    def __init__(self, lines: list[str], functions: dict[str, ast.FunctionDef], asked: ast.FunctionDef):
        self._lines, self._functions, self._asked = lines, functions, asked

    def returned(self, inside: ast.FunctionDef, which: int, deep: int = 0) -> Iterator[Origin]:
        """Yield the origins of what a function returns, of its element `which` where that is a tuple."""
        for node, where_none in _own_nodes(inside.body):
            value = node.value if isinstance(node, ast.Return) else None
            if isinstance(value, ast.Tuple):
                value = value.elts[which] if which < len(value.elts) else None
            if value is not None and isinstance(node, ast.stmt):
                yield from _marked(self._of(value, node, inside, which, deep), where_none)

    def _of(
        self, value: ast.expr, at: ast.stmt, inside: ast.FunctionDef, which: int, deep: int
    ) -> Iterator[Origin]:
        if deep > MOST_DEEP:
            return
        deep += 1
        if isinstance(value, ast.IfExp):
            for branch, where_none in zip((value.body, value.orelse), _where_none(value.test), strict=True):
                yield from _marked(self._of(branch, at, inside, which, deep), where_none)
        elif isinstance(value, ast.Name):
            for node, where_none in _own_nodes(inside.body):
                given = _assigned(node, value.id) if node is not at else None
                if given is not None and isinstance(node, ast.stmt):
                    yield from _marked(self._of(given, node, inside, which, deep), where_none)
            if inside is self._asked and value.id in _parameters(inside):
                yield Origin(value, self._frame(at, inside), value.id)
        elif isinstance(value, ast.Call) and getattr(value.func, "id", "") in self._functions:
            yield from self.returned(self._functions[ast.unparse(value.func)], which, deep)
        elif not (isinstance(value, ast.Constant) and value.value is None):
            yield Origin(value, self._frame(value, inside))

    def _frame(self, node: ast.expr | ast.stmt, inside: ast.FunctionDef) -> Frame:
        line = node.lineno
        return Frame(line=line, function=inside.name, code=self._lines[line - 1].strip())


def _marked(found: Iterable[Origin], where_none: bool) -> Iterator[Origin]:
    return (one._replace(where_none=one.where_none or where_none) for one in found)


def _assigned(node: ast.AST, name: str) -> ast.expr | None:
    """Return what a statement assigns to a name, alone or as one of several; None if it does not."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    if not isinstance(node, ast.Assign | ast.AnnAssign) or len(targets) > 1:
        return None
    if isinstance(targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
        pairs = zip(targets[0].elts, node.value.elts, strict=False)
        return next((value for one, value in pairs if isinstance(one, ast.Name) and one.id == name), None)
    return node.value if isinstance(targets[0], ast.Name) and targets[0].id == name else None


def _where_none(test: ast.expr) -> tuple[bool, bool]:
    """Return whether the code of a condition, and that of its `else`, runs where a name is None."""
    if not (isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and len(test.ops) == 1):
        return False, False
    other = test.comparators[0]
    is_none = isinstance(other, ast.Constant) and other.value is None
    return is_none and isinstance(test.ops[0], ast.Is), is_none and isinstance(test.ops[0], ast.IsNot)


def _parameters(function: ast.FunctionDef) -> set[str]:
    given = function.args
    return {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)}


def _own_nodes(body: Sequence[ast.AST], where_none: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Yield statements, not those of functions inside, in their order; and whether a name is None there."""
    for node in body:
        yield node, where_none
        if isinstance(node, ast.If):
            of_body, of_else = _where_none(node.test)
            yield from _own_nodes(node.body, where_none or of_body)
            yield from _own_nodes(node.orelse, where_none or of_else)
        elif not isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            inside = [
                one for one in ast.iter_child_nodes(node) if isinstance(one, ast.stmt | ast.excepthandler)
            ]
            yield from _own_nodes(inside, where_none)
