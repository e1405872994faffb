"""The texts that the judge tries in place of a submitted file, one after the other.

Most edits change one kernel of the same text, the base. Then the module of the base stays, and only that
kernel is parsed again, which takes a fraction of an import. Any other edit is imported as a whole.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import torch
from triton.runtime.interpreter import InterpretedFunction

from grader.worker import kernel_source
from grader.worker.interpreted import alternatives
from grader.worker.messages import EITHER

OPERATOR = "triton_op"


class EditedFile:
    """Imports texts under one name and one path; no file has to be there."""

    def __init__(self, path: str, name: str):
        self._path, self._name = path, name
        self._loaded = 0  # texts that were imported as a whole
        self._base: ModuleType | None = None
        self._lines: list[str] = []  # of the base
        self._kernels: list[tuple[ast.FunctionDef, FunctionType]] = []
        self._kept: dict[int, tuple[ModuleType, list[str]]] = {}

    def enter(self, kept: int) -> ModuleType | None:
        """Return the module that is kept under a number, with its text in place; None if none is."""
        if kept not in self._kept:
            return None
        _forget_replaced()
        module, lines = self._kept[kept]
        self._enter(module, lines)
        return module

    def load(self, text: str, is_base: bool, is_near: bool, kept: int = 0) -> ModuleType:
        """Return a module with this text; later texts that are near to it may use it, if it `is_base`.

        If this text `is_near` the base, and differs in one kernel alone, its module is that of the base.
        If it is `kept`, it is alone under such a number.
        """
        _forget_replaced()
        lines = text.splitlines(keepends=True)
        if is_near and self._base is not None and self._put_in_place(lines):
            self._enter(self._base, self._lines)
            return self._base
        module = ModuleType(self._name)
        module.__file__ = self._path
        setattr(module, EITHER, alternatives.either)
        self._enter(module, lines)
        tree = kernel_source.tree_of(text)
        self._loaded += 1
        with _operators_apart(self._loaded) if OPERATOR in text else contextlib.nullcontext():
            exec(compile(tree, self._path, "exec"), vars(module))  # noqa: S102 - an import; this is a sandbox
        if kept:
            self._kept = {kept: (module, lines)}
        if is_base:
            self._base, self._lines, self._kernels = module, lines, [*_kernels(module, tree)]
        return module

    def _enter(self, module: ModuleType, lines: list[str]) -> None:
        """Let the path mean this module, with its lines."""
        sys.modules[self._name] = module
        # Without a time of change: Python does not look for a file.
        linecache.cache[self._path] = (len(lines), None, lines, self._path)

    def _put_in_place(self, lines: list[str]) -> bool:
        """Replace the body of the one kernel that has changed; return False if more has."""
        same, most = 0, min(len(lines), len(self._lines))
        while same < most and lines[same] == self._lines[same]:
            same += 1
        after = 0
        while after < most - same and lines[-1 - after] == self._lines[-1 - after]:
            after += 1
        end = len(self._lines) - after  # of what has changed, in the base
        for node, function in self._kernels:
            assert node.end_lineno is not None
            if not (node.body[0].lineno - 1 <= same and end <= node.end_lineno):
                continue
            own = lines[node.lineno - 1 : node.end_lineno + len(lines) - len(self._lines)]
            try:
                found = ast.parse("\n" * (node.lineno - 1) + "".join(own)).body
            except SyntaxError:
                return False
            if len(found) == 1 and isinstance(found[0], ast.FunctionDef):
                kernel_source.replaced[function] = found[0]
                InterpretedFunction.rewritten_fn.pop(function, None)
                return True
        return same == len(lines) == len(self._lines)


@contextlib.contextmanager
def _operators_apart(number: int) -> Iterator[None]:
    """Register operators under names of their own.

    Under the name of an earlier one PyTorch destroys that, and a module that is kept would call it still.
    """
    register = torch.library.triton_op

    def registered(name: str, *args: Any, **options: Any) -> Any:
        return register(f"{name}_{number}", *args, **options)

    torch.library.triton_op = registered
    try:
        yield
    finally:
        torch.library.triton_op = register


def _forget_replaced() -> None:
    """Let each kernel have its own body again."""
    for function in kernel_source.replaced:
        InterpretedFunction.rewritten_fn.pop(function, None)
    kernel_source.replaced.clear()


def _kernels(module: ModuleType, tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, FunctionType]]:
    """Yield the definitions of the kernels of a module, with their functions."""
    nodes = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name, node in nodes.items():
        kernel = getattr(module, name, None)
        while kernel is not None and not isinstance(kernel, InterpretedFunction):
            kernel = getattr(kernel, "fn", None)  # of what autotunes it, or computes its arguments
        if kernel is not None:
            yield node, kernel.fn
