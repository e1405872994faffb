"""A student's file as a tree with scopes: what a name means, and what runs in a kernel; executes nothing."""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass, field
from typing import TypeAlias

from grader.screen.names import JIT

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
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
        if isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
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

    def __init__(self, source: str, tree: ast.Module):
        self.lines = source.split("\n")
        self.tree = ast.Module([part for node in tree.body for part in _kept(node)], tree.type_ignores)
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
            scope.kernel = self._is_kernel(scope.node) or bool(scope.parent and scope.parent.kernel)

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

    def decorators(self, node: ast.AST) -> list[str | None]:
        """Dotted names of a definition's decorators, called or not; None for anything else."""
        found = getattr(node, "decorator_list", ())
        return [self.dotted(one.func if isinstance(one, ast.Call) else one) for one in found]

    def functions_named(self, node: ast.AST) -> list[Function]:
        """Functions and lambdas of this file that a name stands for."""
        if not isinstance(node, ast.Name):
            return [node] if isinstance(node, ast.Lambda) else []
        found = self.scopes[node].find(node.id)
        return [value for value in found.values[node.id] if isinstance(value, FUNCTIONS)] if found else []

    def method(self, node: ast.AST) -> tuple[ast.ClassDef, str] | None:
        """The class of this file and the attribute, for `Class.attribute`."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found = self.scopes[node.value].find(node.value.id)
            for value in found.values[node.value.id] if found else ():
                if isinstance(value, ast.ClassDef):
                    return value, node.attr
        return None

    def _is_kernel(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.FunctionDef):
            return False
        top = node in self.tree.body and node.name in self.wrapped
        return top or not JIT.isdisjoint(self.decorators(node))

    def _enter(self, node: ast.AST, scope: Scope) -> None:
        """Give `node` and everything below it a scope, and the scopes their names."""
        self.scopes[node] = scope
        self._bind(node, scope)
        inner, outside = scope, list[ast.AST]()
        if isinstance(node, FUNCTIONS):
            inner = Scope(node, scope)
            # Defaults, decorators and annotations are evaluated where the function is defined.
            outside = [*node.args.defaults, *(d for d in node.args.kw_defaults if d)]
            outside += [*getattr(node, "decorator_list", ()), *filter(None, [getattr(node, "returns", None)])]
            every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            every += filter(None, [node.args.vararg, node.args.kwarg])
            outside += [arg.annotation for arg in every if arg.annotation]
            for arg in every:
                inner.bind(arg.arg)
        elif isinstance(node, ast.ClassDef):
            inner = Scope(node, scope)
            outside = [*node.bases, *node.keywords, *node.decorator_list]
        elif isinstance(node, COMPREHENSIONS):
            inner = Scope(node, scope)
            outside = [node.generators[0].iter]
        self.scopes.setdefault(node, scope)
        for part in outside:
            self._enter(part, scope)
        self._below(node, inner, set(outside))

    def _below(self, node: ast.AST, scope: Scope, done: set[ast.AST]) -> None:
        for part in ast.iter_child_nodes(node):
            self.parents[part] = node
            if part in done:
                continue
            if isinstance(part, (ast.arguments, ast.arg, ast.comprehension)):
                self.scopes[part] = scope
                self._below(part, scope, done)
            else:
                self._enter(part, scope)

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                scope.bind(node.name, node)
            case ast.Name(name, ast.Store() | ast.Del()):
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
                    full = alias.name if alias.asname else name
                    scope.bind(name, node)
                    scope.imports.setdefault(name, set()).add(full)
            case ast.ImportFrom(module, names):
                for alias in names:
                    name = alias.asname or alias.name
                    scope.bind(name, node)
                    scope.imports.setdefault(name, set()).add(f"{module}.{alias.name}")
            case ast.MatchAs(name=name) | ast.MatchStar(name=name) | ast.MatchMapping(rest=name) if name:
                scope.bind(name)


def _kept(node: ast.stmt) -> list[ast.stmt]:
    """A statement of the module; of `if __name__ == "__main__"` what runs when the file is imported."""
    match node:
        case ast.If(ast.Compare(ast.Name("__name__"), [ast.Eq()], [ast.Constant("__main__")])):
            return node.orelse
        case ast.If(ast.Compare(ast.Constant("__main__"), [ast.Eq()], [ast.Name("__name__")])):
            return node.orelse
    return [node]
