"""Kernels are read from the syntax tree of their file, where Triton searches the file's text for them.

Triton's interpreter begins at the last line of a kernel's text that starts with `def `, and its compiler at
the first that looks like `def name(`. Either may lie in a docstring or in a decorator. Then the kernel that
runs is not the one that the file defines.
"""

from __future__ import annotations

import ast
import copy
import functools
import linecache
from collections.abc import Callable
from types import FunctionType

import triton
from triton.runtime import interpreter, jit


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

    @functools.wraps(plain)
    def rewrite_ast(self):  # type: ignore[no-untyped-def]  # its attributes are Triton's
        own = definition(self.fn)
        if own is None:
            return plain(self)
        self.filename = self.fn.__code__.co_filename
        tree = self.ast_transformer.visit(ast.Module([own], []))
        return self._compile_and_exec(ast.fix_missing_locations(tree))

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
    if not isinstance(function, FunctionType):
        return None
    code = function.__code__
    linecache.checkcache(code.co_filename)
    for node in _definitions("".join(linecache.getlines(code.co_filename, function.__globals__))):
        first = node.decorator_list[0] if node.decorator_list else node
        if (node.name, first.lineno) == (function.__name__, code.co_firstlineno):
            own = copy.deepcopy(node)  # what the interpreter transforms in place
            own.decorator_list = []
            return own
    return None


@functools.lru_cache(maxsize=16)
def _definitions(text: str) -> tuple[ast.FunctionDef, ...]:
    try:
        return tuple(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    except (SyntaxError, ValueError):
        return ()
