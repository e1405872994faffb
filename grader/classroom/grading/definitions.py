"""Which definitions of some modules a name may mean, and where each name is used."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TypeVar

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef
Node = TypeVar("Node", bound=ast.AST)


class Definitions:
    """The definitions of modules, by full name, that import each other.

    An attribute is taken to be of every value: `x.where` is a use of each field of that name.
    """

    def __init__(self, trees: Mapping[str, ast.Module]):
        self._trees = trees
        self._parents: dict[ast.AST, tuple[ast.AST, str]] = {}
        self._loads: defaultdict[str, list[ast.expr]] = defaultdict(list)
        self._defined: defaultdict[str, list[Definition]] = defaultdict(list)
        self._modules: dict[ast.AST, ast.Module] = {}
        self._within: defaultdict[ast.AST, set[ast.AST]] = defaultdict(
            set
        )  # nodes of a function, once asked for
        self._own: dict[ast.Module, set[str]] = {}  # names that a module defines at its top
        self._imported: dict[ast.Module, dict[str, str]] = {}  # full names by the names in the module
        for tree in trees.values():
            self._own[tree] = {name for one in tree.body for name in _defines(one)}
            self._imported[tree] = dict(pair for node in ast.walk(tree) for pair in _imports(node))
            for node in ast.walk(tree):
                self._take(node, tree)

    def _take(self, node: ast.AST, tree: ast.Module) -> None:
        self._modules[node] = tree
        self._parents |= {child: (node, field) for field, child in _children(node)}
        if isinstance(node, Definition):
            self._defined[node.name].append(node)
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            name = name_of(node)
            self._loads[name].append(node)
            before = self._imported[tree].get(name, name).rpartition(".")[2]
            if isinstance(node, ast.Name) and before != name:  # imported under another name
                self._loads[before].append(node)

    def place(self, node: ast.AST) -> tuple[ast.AST, str]:
        """Return the node that holds another one, and the field that it is in."""
        return self._parents[node]

    def parent(self, node: ast.AST) -> ast.AST | None:
        """Return the node that holds another one, None for a module."""
        return self._parents[node][0] if node in self._parents else None

    def enclosing(self, node: ast.AST, kind: type[Node]) -> Node | None:
        """Return the nearest node of a kind around another one."""
        above = self.parent(node)
        while above:
            if isinstance(above, kind):
                return above
            above = self.parent(above)
        return None

    def scope(self, node: ast.AST) -> ast.AST:
        """Return the function, the class or the module that a name belongs to."""
        above = self.parent(node)
        while above and not isinstance(above, Definition):
            above = self.parent(above)
        return above or self._modules[node]

    def meant(self, called: ast.AST) -> list[Definition]:
        """Return the functions and classes that a name, or an attribute, may mean."""
        name = name_of(called)
        if isinstance(called, ast.Name):
            name = self._imported[self._modules[called]].get(name, name).rpartition(".")[2]
        if name == "cls":
            own = self.enclosing(called, ast.ClassDef)
            return [own] if own else []
        return [
            one
            for one in self._defined[name]
            if self._means(called, self._modules[one], self._parents[one][0])
        ]

    def uses(self, name: str, scope: ast.AST) -> list[ast.expr] | None:
        """Return the uses of a name of a function, or of a module; None if not all are known."""
        if isinstance(scope, ast.ClassDef):
            return None
        if not isinstance(scope, Function):
            return [one for one in self._loads[name] if self._means(one, self._modules[scope], scope)]
        nodes = self._within[scope]
        if not nodes:
            nodes.update(ast.walk(scope))
        if any(isinstance(one, (ast.Global, ast.Nonlocal)) and name in one.names for one in nodes):
            return None
        return [one for one in self._loads[name] if isinstance(one, ast.Name) and one in nodes]

    def results(self, function: Function) -> list[ast.expr] | None:
        """Return the calls of a function, or the uses of a property; None if not all are known."""
        decorators = {name_of(one) for one in function.decorator_list}
        home, holder = self._modules[function], self._parents[function][0]
        loads = [one for one in self._loads[function.name] if self._means(one, home, holder)]
        if decorators & {"property", "cached_property"}:
            return [one for one in loads if isinstance(one, ast.Attribute)]
        if decorators - {"staticmethod", "classmethod", "lru_cache", "cache"} or function.name.startswith(
            "__"
        ):
            return None
        calls = [call for one in loads for call in self._calls(one)]
        return None if None in calls else [one for one in calls if one]

    def _calls(self, load: ast.AST) -> list[ast.Call | None]:
        """Return the calls of a function where it is named or in a table, None for any other use."""
        parent, field = self._parents[load]
        if isinstance(parent, ast.Call) and field == "func":
            return [parent]
        above = self.parent(parent)
        if (
            isinstance(parent, ast.Dict)
            and field == "values"
            and isinstance(above, (ast.Assign, ast.AnnAssign))
        ):
            names = [name for name in _defines(above) if name]
            tables = [self.uses(name, self.scope(above)) for name in names]
            if not all(tables):
                return [None]
            return [call for table in tables for one in table or () for call in self._taken(one)]
        return [None]  # who is handed a function may call it

    def _taken(self, table: ast.AST) -> list[ast.Call | None]:
        parent, field = self._parents[table]
        if isinstance(parent, ast.Subscript) and field == "value":
            call, field = self._parents[parent]
            return [call if isinstance(call, ast.Call) and field == "func" else None]
        return [None]

    def attributes(self, name: str) -> list[ast.expr]:
        """Return the uses of a field, those excepted that call it as a method."""
        loads = [one for one in self._loads[name] if isinstance(one, ast.Attribute)]
        return [one for one in loads if self._parents[one][1] != "func"]

    def _means(self, load: ast.AST, home: ast.Module, holder: ast.AST) -> bool:
        """Whether a name, or an attribute of that name, may be what `holder`, of a module, defines."""
        here = self._modules[load]
        full = self._imported[here]
        match load:
            case ast.Name(id=name) if name in self._own[here]:
                return here is home
            case ast.Name(id=name) if name in full:
                return self._is_in(full[name].rpartition(".")[0], home)
            case ast.Name():
                return here is home or "*" in full
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                own = self.enclosing(load, ast.ClassDef)
                return here is home or own is None or bool(own.bases)
            case ast.Attribute(value=ast.Name(id=name)) if full.get(name) in self._trees:
                return self._is_in(full[name], home)
            case ast.Attribute(value=ast.Attribute(attr=name)) if holder is home:
                return any(name == known.rpartition(".")[2] for known in self._trees)  # x.module.name
        return True

    def _is_in(self, module: str, home: ast.Module) -> bool:
        """Whether what is imported from a module may be of another one, which a package passes on."""
        found = self._trees.get(module)
        return found is home or found is None or any(name.startswith(f"{module}.") for name in self._trees)


def name_of(node: ast.AST) -> str:
    """Return the last part of a name, or of the name of what is called; "" for any other expression."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=function):
            return name_of(function)
    return ""


def parameters(function: Function) -> list[str]:
    """Return the names of a function's parameters, `*args` and `**kwargs` excepted."""
    found = function.args
    return [one.arg for one in [*found.posonlyargs, *found.args, *found.kwonlyargs]]


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for field, value in ast.iter_fields(node):
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.AST):
                yield field, one


def _defines(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [name_of(one) for one in targets]
        case ast.AnnAssign(target=target):
            return [name_of(target)]
    return []


def _imports(node: ast.AST) -> list[tuple[str, str]]:
    match node:
        case ast.Import(names=names):
            return [(one.asname or one.name, one.name) for one in names]
        case ast.ImportFrom(module=str(module), names=names):
            return [(one.asname or one.name, f"{module}.{one.name}") for one in names]
    return []
