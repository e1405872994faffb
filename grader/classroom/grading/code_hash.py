"""Hashes of Python files by what they compute: comments, docstrings and layout are left out.

For a lab.py there are two: with its points and thresholds, and without them. Both leave out the texts.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
from collections.abc import Collection

from grader.course.spec import Codegen, Document, Exercise, Lab, Speed

TEXTS = ("title", "teaches", "causes")  # arguments that are only shown
POINTS = ("points", "zero_at", "passing_at", "full_at", "scale")  # arguments that only turn into points
CHECKS = "checks"  # maps the name of a check to its points, perhaps with its function
SPEC = {one.__name__: [field.name for field in dataclasses.fields(one)] for one in (
    Codegen, Document, Exercise, Lab, Speed,
)}  # fmt: skip


def code(text: str, texts: Collection[str] = ()) -> str:
    """Return the hash of a module; strings in assignments to `texts` are left out. Raises SyntaxError."""
    return of_tree(ast.parse(text), texts)


def of_tree(tree: ast.Module, texts: Collection[str] = ()) -> str:
    """Return the same hash of a syntax tree, which is changed."""
    return _digest(_Stripped(texts).visit(tree))


def scores(text: str) -> str:
    """Return the hash of a lab.py without its texts. Raises SyntaxError."""
    tree = ast.parse(text)
    return _digest(_Arguments(tree, with_points=True).visit(_Stripped(()).visit(tree)))


def measures(text: str) -> str:
    """Return the hash of a lab.py without its texts, points and thresholds. Raises SyntaxError."""
    tree = ast.parse(text)
    return _digest(_Arguments(tree, with_points=False).visit(_Stripped(()).visit(tree)))


def _digest(tree: ast.AST) -> str:
    return hashlib.sha256(ast.unparse(ast.fix_missing_locations(tree)).encode()).hexdigest()


class _Stripped(ast.NodeTransformer):
    """Removes strings that are statements, such as docstrings, and empties those assigned to some names."""

    def __init__(self, texts: Collection[str]):
        self._texts = texts

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        return _constants(node, str, "") if _name(node.target) in self._texts else self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        named = any(_name(target) in self._texts for target in node.targets)
        return _constants(node, str, "") if named else self.generic_visit(node)


class _Arguments(ast.NodeTransformer):
    """Replaces arguments that hold texts, and those that hold points, by nothing."""

    def __init__(self, tree: ast.Module, *, with_points: bool):
        self._dropped = {*TEXTS, *(() if with_points else POINTS)}
        self._with_points = with_points
        own = {
            node.name: [argument.arg for argument in node.args.args]
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
        }
        self._parameters = SPEC | own

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        names = self._parameters.get(_name(node.func), [])
        node.args = [
            self._without(names[k] if k < len(names) else "", value) for k, value in enumerate(node.args)
        ]
        for keyword in node.keywords:
            keyword.value = self._without(keyword.arg or "", keyword.value)
        return node

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        self.generic_visit(node)
        first = len(node.args) - len(node.defaults)
        node.defaults = [
            self._without(node.args[first + k].arg, value) for k, value in enumerate(node.defaults)
        ]
        return node

    def _without(self, name: str, value: ast.expr) -> ast.expr:
        if name in self._dropped:
            return ast.Constant(0)
        return _constants(value, (int, float), 0) if name == CHECKS and not self._with_points else value


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _constants(node: ast.AST, kind: type | tuple[type, ...], instead: object) -> ast.AST:
    """Return the node with every constant of a kind replaced."""
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and isinstance(one.value, kind):
            one.value = instead
    return node
