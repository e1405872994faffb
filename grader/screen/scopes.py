"""A student's file as a tree with scopes: what a name means, and what runs in a kernel; executes nothing."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from grader.screen.language import JIT, WRAPPERS

FUNCTIONS = (ast.FunctionDef, ast.Lambda)
Function: TypeAlias = ast.FunctionDef | ast.Lambda
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# What `site` adds counts as Python's own even where the judge runs without it.
PYTHON_OWN = frozenset(dir(builtins)) | {"exit", "quit", "help", "copyright", "credits", "license"}
MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)


@dataclass(eq=False)
class Scope:
    """Names that one module, class, function or comprehension binds, and the values seen for them."""

    node: ast.AST
    parent: Scope | None = None
    kernel: bool = False
    imports: dict[str, set[str]] = field(default_factory=dict)
    values: dict[str, list[ast.AST | None]] = field(default_factory=dict)  # None: not a plain assignment

    @property
    def is_function(self) -> bool:
        """Whether its names are locals, which never fall back to Python's own."""
        return not isinstance(self.node, (ast.Module, ast.ClassDef))

    @property
    def function(self) -> str:
        """The function around it, as a message names it."""
        if isinstance(self.node, (ast.FunctionDef, ast.ClassDef)):
            return self.node.name
        return self.parent.function if self.parent else "<module>"

    def bind(self, name: str, value: ast.AST | None = None) -> None:
        """Note that the scope gives `name` a value."""
        self.values.setdefault(name, []).append(value)

    def find(self, name: str) -> Scope | None:
        """The scope whose `name` is meant here; None for Python's own names and unknown ones."""
        scope: Scope | None = self
        while scope:
            if (name in scope.values) and (scope is self or not isinstance(scope.node, ast.ClassDef)):
                return scope
            scope = scope.parent
        return None

    def holds_own_container(self, name: str) -> bool:
        """Whether this scope itself made the list or dict that `name` stands for."""
        values = self.values.get(name, [])
        return bool(values) and all(_fresh(value) for value in values)


def _fresh(value: ast.AST | None) -> bool:
    match value:
        case ast.Call(ast.Name("list" | "dict" | "set" | "sorted")):
            return True
        case ast.BinOp(left, ast.Mult() | ast.Add() | ast.BitOr(), right):
            return _fresh(left) or _fresh(right)
    return isinstance(value, MUTABLE)


class File:
    """The syntax tree without its `__main__` block, with the scope of every node.

    RecursionError or MemoryError where it is too deep.
    """

    def __init__(self, tree: ast.Module):
        self.tree = tree
        self.scopes: dict[ast.AST, Scope] = {}
        self.parents: dict[ast.AST, ast.AST] = {}
        self.module = Scope(self.tree)
        self._enter(self.tree, self.module)
        self.wrapped = {  # plain functions that `name = triton.jit(function)` makes kernels of
            argument.id
            for node in self.scopes
            if isinstance(node, ast.Call) and self.dotted(node.func) in JIT
            for argument in node.args[:1]
            if isinstance(argument, ast.Name)
        }
        for scope in dict.fromkeys(self.scopes.values()):  # outer scopes come first
            scope.kernel = self.is_kernel(scope.node) or bool(scope.parent and scope.parent.kernel)

    def values(self, node: ast.AST) -> list[ast.AST | None]:
        """What a name is given anywhere; None among them for what is no plain assignment."""
        found = self.scopes[node].find(node.id) if isinstance(node, ast.Name) else None
        return found.values[node.id] if found and isinstance(node, ast.Name) else []

    def dotted(self, node: ast.AST) -> str | None:
        """`torch.cuda.device` for an expression that leads there through imports; else None."""
        tail = []
        while isinstance(node, ast.Attribute):
            tail.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node not in self.scopes:
            return None
        found = self.scopes[node].find(node.id)
        if not found or node.id not in found.imports:
            return None
        return ".".join([min(found.imports[node.id]), *reversed(tail)])

    def called(self, node: ast.AST) -> str | None:
        """The dotted name of a decorator or a callee, called with arguments or not."""
        return self.dotted(node.func if isinstance(node, ast.Call) else node)

    def functions_of(self, node: ast.AST | None, depth: int = 8) -> list[Function]:
        """Functions and lambdas that an expression may be; a kernel also through its wrappers."""
        match node:
            case ast.FunctionDef() | ast.Lambda():
                return [node]
            case ast.Name() if depth > 0:  # what is no name counts, too: `a = a if b else c` is its own part
                parts = self.values(node)
            case ast.IfExp(_, one, other):
                parts = [one, other]
            case ast.Call(func, [argument, *_]) if self.called(func) in WRAPPERS:
                parts = [argument]
            case _:
                return []
        found = [one for part in parts if part is not node for one in self.functions_of(part, depth - 1)]
        return list(dict.fromkeys(found))

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The class of this file that a name stands for."""
        return next((one for one in self.values(node) if isinstance(one, ast.ClassDef)), None)

    def method(self, node: ast.AST) -> tuple[ast.ClassDef, str] | None:
        """The class of this file and the attribute, for `Class.attribute` or a name that stands for it."""
        for one in [node, *self.values(node)]:
            if isinstance(one, ast.Attribute) and (owner := self.class_of(one.value)):
                return owner, one.attr
        return None

    def is_kernel(self, node: ast.AST) -> bool:
        """Whether a definition is compiled by Triton."""
        if not isinstance(node, ast.FunctionDef):
            return False
        top = node in self.tree.body and node.name in self.wrapped
        return top or any(self.called(one) in JIT for one in node.decorator_list)

    def above(self, node: ast.AST, *kinds: type[ast.AST]) -> ast.AST | None:
        """The first node above that is of no such kind."""
        found = self.parents.get(node)
        while isinstance(found, kinds):
            found = self.parents.get(found)
        return found

    def _enter(self, node: ast.AST, scope: Scope) -> None:
        """Give `node` and everything below it a scope, and the scopes their names."""
        self.scopes[node] = scope
        self._bind(node, scope)
        inner, outside = scope, set[ast.AST]()
        if isinstance(node, FUNCTIONS):
            inner = Scope(node, scope)
            # Defaults, decorators and annotations are evaluated where the function is defined.
            outside = {*node.args.defaults, *filter(None, node.args.kw_defaults)}
            outside |= {*getattr(node, "decorator_list", ()), *filter(None, [getattr(node, "returns", None)])}
            for arg in parameters(node):
                inner.bind(arg.arg)
                outside |= {*filter(None, [arg.annotation])}
        elif isinstance(node, ast.ClassDef):
            inner = Scope(node, scope)
            outside = {*node.bases, *node.decorator_list}
        elif isinstance(node, COMPREHENSIONS):
            inner = Scope(node, scope)
            outside = {node.generators[0].iter}
        self._below(node, inner, scope, outside)

    def _below(self, node: ast.AST, inner: Scope, outer: Scope, outside: set[ast.AST]) -> None:
        for part in ast.iter_child_nodes(node):
            self.parents[part] = node
            if part in outside:
                self._enter(part, outer)
            elif isinstance(part, (ast.arguments, ast.arg, ast.comprehension)):
                self.scopes[part] = inner
                self._below(part, inner, outer, outside)
            else:
                self._enter(part, inner)

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                scope.bind(node.name, node)
            case ast.Name(name, ast.Store()):
                parent = self.parents.get(node)
                match parent:
                    case ast.NamedExpr():
                        while isinstance(scope.node, COMPREHENSIONS) and scope.parent:
                            scope = scope.parent
                        scope.bind(name)
                    case ast.Assign() | ast.AnnAssign() if parent.value:
                        scope.bind(name, parent.value)
                    case ast.AugAssign():
                        pass  # what it binds, something else has bound before
                    case _:
                        scope.bind(name)
            case ast.Import(names):
                for alias in names:
                    name = alias.asname or alias.name.partition(".")[0]
                    self._import(scope, name, alias.name if alias.asname else name, node)
            case ast.ImportFrom(module, names):
                for alias in names:
                    self._import(scope, alias.asname or alias.name, f"{module}.{alias.name}", node)

    def _import(self, scope: Scope, name: str, full: str, node: ast.AST) -> None:
        scope.bind(name, node)
        scope.imports.setdefault(name, set()).add(full)


def parameters(node: Function) -> list[ast.arg]:
    """All parameters of a function, those by position first."""
    args = node.args
    rest = [one for one in (args.vararg, args.kwarg) if one]
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *rest]


def run_when_imported(tree: ast.Module) -> ast.Module:
    """The tree without its blocks under `if __name__ == "__main__"`."""
    return ast.Module([part for node in tree.body for part in _kept(node)], tree.type_ignores)


def _kept(node: ast.stmt) -> Iterator[ast.stmt]:
    match node:
        case ast.If(ast.Compare(ast.Name("__name__"), [ast.Eq()], [ast.Constant("__main__")])):
            yield from node.orelse
        case ast.If(ast.Compare(ast.Constant("__main__"), [ast.Eq()], [ast.Name("__name__")])):
            yield from node.orelse
        case _:
            yield node
