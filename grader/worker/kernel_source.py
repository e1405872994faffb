"""Kernels are read from the syntax tree of their file, where Triton searches the file's text for them.

Triton's interpreter begins at the last line of a kernel's text that starts with `def `, and its compiler at
the first that looks like `def name(`. Either may lie in a docstring or in a decorator. Then the kernel that
runs is not the one that the file defines.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import linecache
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import triton
from triton.runtime import interpreter, jit

# Definitions that run in place of those of the functions' file: the judge tries edits of one kernel.
replaced: dict[FunctionType, ast.FunctionDef] = {}


def read_from_the_tree() -> None:
    """Let Triton run and compile functions as Python defined them.

    A Triton release that reads kernels in another way is not changed.
    """
    rewriter = getattr(interpreter, "FunctionRewriter", None)
    if rewriter and all(
        hasattr(rewriter, name) for name in ("rewrite_ast", "ast_transformer", "_compile_and_exec")
    ):
        rewriter.rewrite_ast = _rewritten(rewriter.rewrite_ast)
    if hasattr(jit, "JITCallable"):
        jit.JITCallable.__init__ = _with_own_source(jit.JITCallable.__init__)


def _rewritten(plain: Callable[[object], object]) -> Callable[[object], object]:
    """Replace FunctionRewriter.rewrite_ast: from a function to what the interpreter calls."""

    # What the interpreter made of a function, by its file and its text: edited files differ in one function.
    made: dict[tuple[str, str, str], CodeType] = {}

    @functools.wraps(plain)
    def rewrite_ast(self):  # type: ignore[no-untyped-def]  # its attributes are Triton's
        if self.fn in replaced:
            self.filename = self.fn.__code__.co_filename
            tree = self.ast_transformer.visit(ast.Module([replaced[self.fn]], []))
            return self._compile_and_exec(ast.fix_missing_locations(tree))
        node = _node(self.fn)
        if node is None:
            return plain(self)
        self.filename = self.fn.__code__.co_filename
        place = f"{node.lineno}:{node.col_offset}-{node.end_col_offset}"
        key = self.filename, place, "".join(_lines(self.fn)[node.lineno - 1 : node.end_lineno])
        if key not in made:
            tree = self.ast_transformer.visit(ast.Module([_own(node, _lines(self.fn))], []))
            function = self._compile_and_exec(ast.fix_missing_locations(tree))
            if not function.__code__.co_freevars:
                made[key] = function.__code__
            return function
        # An empty function gets from Triton the names that a kernel needs, and then the code.
        function = self._compile_and_exec(ast.parse(f"def {node.name}(): pass"))
        function.__code__, function.__annotations__ = made[key], self.fn.__annotations__
        function.__defaults__, function.__kwdefaults__ = self.fn.__defaults__, self.fn.__kwdefaults__
        return function

    return rewrite_ast


def _with_own_source(plain: Callable[..., None]) -> Callable[..., None]:
    """Replace JITCallable.__init__, which keeps the text that is compiled."""

    @functools.wraps(plain)
    def begin(self: triton.runtime.jit.JITCallable, fn: object) -> None:
        plain(self, fn)
        own = definition(fn)
        # The text stays where it is the same code: it has the student's own lines and comments.
        if own is not None and _dumped(getattr(self, "_src", "")) != ast.dump(own):
            self._src = ast.unparse(own)

    return begin


def _dumped(text: str) -> str:
    try:
        return "".join(map(ast.dump, ast.parse(text).body))
    except (SyntaxError, ValueError):
        return ""


def definition(function: object) -> ast.FunctionDef | None:
    """Return a function's definition in its file, without decorators; None if it has no file."""
    found = _node(function)
    return _copy(found) if found else None


def _node(function: object) -> ast.FunctionDef | None:
    if not isinstance(function, FunctionType):
        return None
    code = function.__code__
    linecache.checkcache(code.co_filename)
    for node in _definitions("".join(_lines(function))):
        first = node.decorator_list[0] if node.decorator_list else node
        if (node.name, first.lineno) == (function.__name__, code.co_firstlineno):
            return node
    return None


def _lines(function: FunctionType) -> list[str]:
    return linecache.getlines(function.__code__.co_filename, function.__globals__)


def _own(node: ast.FunctionDef, lines: list[str]) -> ast.FunctionDef:
    """Return a copy without decorators, read from the text again where nothing stands around it."""
    if node.col_offset == 0:
        with contextlib.suppress(SyntaxError):
            text = "".join(lines[node.lineno - 1 : node.end_lineno])
            found = ast.parse("\n" * (node.lineno - 1) + text).body
            if len(found) == 1 and isinstance(found[0], ast.FunctionDef):
                return found[0]
    return _copy(node)


def _copy(node: ast.FunctionDef) -> ast.FunctionDef:
    """Return a copy without decorators: the interpreter transforms it in place."""
    own = _copied(node)
    own.decorator_list = []
    return own


def _copied(value: Any) -> Any:
    """Return a deep copy of a part of a syntax tree; copy.deepcopy takes several times as long."""
    if isinstance(value, list):
        return [_copied(one) for one in value]
    if not isinstance(value, ast.AST):
        return value
    fields = {name: _copied(one) for name, one in ast.iter_fields(value)}
    return ast.copy_location(type(value)(**fields), value)


@functools.lru_cache(maxsize=16)
def tree_of(text: str) -> ast.Module:
    """Return the syntax tree of a file, which nobody may change; SyntaxError if it is not Python."""
    return ast.parse(text)


@functools.lru_cache(maxsize=16)
def _definitions(text: str) -> tuple[ast.FunctionDef, ...]:
    try:
        return tuple(_defined_in(tree_of(text)))
    except (SyntaxError, ValueError):
        return ()


def _defined_in(node: ast.AST) -> Iterator[ast.FunctionDef]:
    """Yield the functions in a statement; expressions have none, and most of a tree is expressions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield child
        if not isinstance(child, ast.expr):
            yield from _defined_in(child)
