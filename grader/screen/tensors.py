"""Where host code computes with tensors by an operator: `x + y` is PyTorch's work as much as torch.add."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from typing import TypeAlias

from grader.screen.names import ALLOCATE, words
from grader.screen.scopes import File, Function, Scope

ROUNDS, DEPTH, LEAVES = 12, 4, 256  # kinds only ever grow; deeper nests count as tensors
MAKERS = frozenset(f"torch.{name}" for name in ALLOCATE)
GIVES_TENSOR = frozenset(
    words(
        "new_empty new_empty_strided new_zeros new_full zero_ fill_ contiguous to detach view "
        "view_as reshape "
        "t T mT transpose permute flatten squeeze unsqueeze expand expand_as requires_grad_"
    )
)
ARITHMETIC = frozenset(words("sum abs pow divmod round min max any all"))
SCALARS = frozenset({"int", "float", "bool", "str"})

# What an expression may be: False for no tensor, True for one, a tuple of kinds for a list, tuple or dict.
Kind: TypeAlias = "bool | tuple[Kind, ...]"


def join(one: Kind, other: Kind, depth: int = 0) -> Kind:
    """The kind of a value that may be either."""
    if one == other or not any_tensor(other):
        return one
    if not any_tensor(one):
        return other
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other) and depth < DEPTH:
        return tuple(join(a, b, depth + 1) for a, b in zip(one, other, strict=True))
    return True


def any_tensor(kind: Kind) -> bool:
    """Whether a tensor may be in there."""
    return any(map(any_tensor, kind)) if isinstance(kind, tuple) else kind


def element(kind: Kind) -> Kind:
    """What iterating over a value gives."""
    if not isinstance(kind, tuple):
        return kind
    found: Kind = False
    for part in kind:
        found = join(found, part)
    return found


def _capped(kind: Kind) -> Kind:
    """The kind in bounded size, so that no file makes this slow."""
    if not isinstance(kind, tuple) or not any_tensor(kind):
        return kind is True
    leaves, depth = _size(kind)
    return (kind if leaves <= LEAVES else (True,)) if depth <= DEPTH else True


def _size(kind: Kind) -> tuple[int, int]:
    if not isinstance(kind, tuple):
        return 1, 0
    sizes = [_size(part) for part in kind]
    return sum(leaves for leaves, _ in sizes), 1 + max((depth for _, depth in sizes), default=0)


def _defaults(args: ast.arguments) -> Iterator[tuple[ast.arg, ast.expr]]:
    """Parameters that have a default value, each with it."""
    yield from zip(reversed([*args.posonlyargs, *args.args]), reversed(args.defaults), strict=False)
    for one, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        if default:
            yield one, default


class Tensors:
    """Kinds of all names of a file's host code, from the graded functions and the allocations on."""

    def __init__(
        self, file: File, graded: Iterable[str], numbers: Collection[str] = (), makers: Collection[str] = ()
    ):
        """`graded` functions get tensors, but for their parameters named in `numbers`.

        What the imported functions named in `makers` return may be tensors.
        """
        self.file = file
        self.makers = MAKERS | set(makers)
        self.names: dict[tuple[Scope, str], Kind] = {}
        self.returns: dict[ast.AST, Kind] = {}
        self.attributes: set[str] = set()  # of ctx
        self.inner = {scope.node: scope for scope in file.scopes.values()}
        self.nodes = [node for node, scope in file.scopes.items() if not scope.kernel]
        self.wild = False  # a tensor goes to a function that nobody can name
        self.changed = True
        for top in file.tree.body:
            if isinstance(top, ast.FunctionDef) and top.name in graded and top in self.inner:
                self._give_all(top, numbers=numbers)
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef) and node.name == "backward" and node in self.inner:
                self._give_all(node, skip=1)
        for _ in range(ROUNDS):
            if not self.changed:
                break
            self.changed = False
            for node in self.nodes:
                self._learn(node)

    def kind(self, node: ast.AST | None) -> Kind:
        """What the value of an expression may be."""
        match node:
            case ast.Name(name):
                scope = self.file.scopes[node].find(name)
                return self.names.get((scope, name), False) if scope else False
            case ast.Tuple(parts) | ast.List(parts) | ast.Set(parts):
                if any(isinstance(part, ast.Starred) for part in parts):
                    return (element(tuple(map(self.kind, parts))),)
                return _capped(tuple(map(self.kind, parts)))
            case ast.Dict(_, parts):
                return _capped(tuple(map(self.kind, parts)))
            case ast.ListComp(part) | ast.SetComp(part) | ast.GeneratorExp(part) | ast.DictComp(value=part):
                return _capped((self.kind(part),))
            case ast.Starred(value):
                return element(self.kind(value))
            case ast.NamedExpr(_, value):
                return self.kind(value)
            case ast.IfExp(_, one, other):
                return join(self.kind(one), self.kind(other))
            case ast.BoolOp(_, parts):
                return element(tuple(map(self.kind, parts)))
            case ast.BinOp(left, _, right):
                first, second = self.kind(left), self.kind(right)
                if isinstance(first, tuple) and isinstance(second, tuple):
                    both = first + second
                    return both if len(both) < 64 else (element(both),)
                return join(first, second)
            case ast.UnaryOp(op, value):
                return not isinstance(op, ast.Not) and self.kind(value) is True
            case ast.Subscript(value, at):
                return self._item(self.kind(value), at)
            case ast.Attribute(value, attr):
                if attr == "saved_tensors" or (attr in self.attributes and isinstance(value, ast.Name)):
                    return True
                return attr in ("T", "mT") and self.kind(value) is True
            case ast.Call():
                return self._call(node)
        return False

    def _item(self, kind: Kind, at: ast.AST) -> Kind:
        if not isinstance(kind, tuple):
            return kind
        match at:
            case ast.Slice():
                return (element(kind),)
            case ast.Constant(int(index)) if index < len(kind):
                return kind[index]
        return element(kind)

    def _call(self, node: ast.Call) -> Kind:
        """The kind of a call's result; what it hands on is for _learn."""
        func = node.func
        if self.file.dotted(func):
            return self.file.dotted(func) in self.makers
        if targets := self._targets(func):
            return element(tuple(self.returns.get(target, False) for target, _ in targets))
        match func:
            case ast.Name("tuple" | "list" | "sorted" | "reversed" | "set") if node.args:
                kind = self.kind(node.args[0])
                return kind if isinstance(kind, tuple) else (kind,)
            case ast.Name("enumerate") if node.args:
                return ((False, element(self.kind(node.args[0]))),)
            case ast.Name("zip"):
                return (tuple(element(self.kind(argument)) for argument in node.args),)
            case ast.Name(name) if name in ARITHMETIC:
                return any(any_tensor(self.kind(argument)) for argument in node.args)
            case ast.Name(name) if not self.file.scopes[func].find(name):
                return name in ("map", "filter") and any(any_tensor(self.kind(one)) for one in node.args)
            case ast.Attribute(value, attr):
                kind = self.kind(value)
                if isinstance(kind, tuple):
                    return (tuple((False, one) for one in kind)) if attr == "items" else element(kind)
                return kind is True and attr in GIVES_TENSOR
        return self._unnamed(node) and any(map(any_tensor, self._arguments(node)))

    def _arguments(self, node: ast.Call) -> Iterator[Kind]:
        yield from map(self.kind, node.args)
        yield from (self.kind(keyword.value) for keyword in node.keywords)

    def _targets(self, func: ast.AST) -> list[tuple[Function, int]]:
        """Functions that a call enters, each with the number of parameters that Python or PyTorch fills."""
        if method := self.file.method(func):
            owner, name = method
            wanted, skip = ("forward", 1) if name == "apply" else (name, 0)
            return [
                (one, skip) for one in owner.body if isinstance(one, ast.FunctionDef) and one.name == wanted
            ]
        return [(one, 0) for one in self.file.functions_named(func)]

    def _unnamed(self, node: ast.Call) -> bool:
        """Whether a call enters a function by anything but a name, a method or a launch."""
        func = node.func
        if self.file.dotted(func):
            return False
        if isinstance(func, ast.Subscript):
            return not self._of_a_kernel(func)
        if isinstance(func, ast.Name):
            scope = self.file.scopes[func].find(func.id)
            values = scope.values.get(func.id, []) if scope else []
            # `launch = kernel[grid]` is a launch in two steps.
            launch = values and all(
                isinstance(one, ast.Subscript) and self._of_a_kernel(one) for one in values
            )
            return bool(scope) and not launch
        return not isinstance(func, ast.Attribute)

    def _of_a_kernel(self, node: ast.Subscript) -> bool:
        """Whether `value[...]` can be a kernel with its grid: no part of a list or a dict."""
        if not isinstance(node.value, ast.Name):
            return isinstance(node.value, ast.Call)
        scope = self.file.scopes[node.value].find(node.value.id)
        return not (scope and scope.holds_own_container(node.value.id))

    def _learn(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets, value):
                for target in targets:
                    self._give(target, self.kind(value))
            case ast.AnnAssign(target=target, value=value) | ast.NamedExpr(target, value) if value:
                self._give(target, self.kind(value))
            case ast.AugAssign(target, _, value):
                kind = self.kind(value)
                self._give(target, (element(kind),) if isinstance(kind, tuple) else kind)
            case ast.For(target, values) | ast.comprehension(target, values):
                self._give(target, element(self.kind(values)))
            case ast.Match(subject, cases):
                kind = element(self.kind(subject))
                for name in [n for case in cases for n in ast.walk(case.pattern)]:
                    text = getattr(name, "name", None) or getattr(name, "rest", None)
                    if isinstance(text, str):
                        self._set(self.file.scopes[node], text, kind)
            case ast.Return(value) if value:
                self._return(self.file.scopes[node].node, self.kind(value))
            case ast.Yield(value) if value:
                self._return(self.file.scopes[node].node, (self.kind(value),))
            case ast.YieldFrom(value):
                self._return(self.file.scopes[node].node, (element(self.kind(value)),))
            case ast.Lambda():
                self._return(node, self.kind(node.body))
                self._take_defaults(node)
            case ast.FunctionDef() if not self.inner[node].kernel:
                self._take_defaults(node)
            case ast.Call():
                self._pass_on(node)
            case ast.Name(_, ast.Load()) if self.wild:
                call = self.file.parents.get(node)
                if not (isinstance(call, ast.Call) and call.func is node) and not self._for_triton(node):
                    for function in self.file.functions_named(node):
                        self._give_all(function)

    def _for_triton(self, node: ast.AST) -> bool:
        """Whether a function is handed to Triton: a grid, or part of the arguments of triton.autotune."""
        above = self.file.parents.get(node)
        while isinstance(above, (ast.Dict, ast.List, ast.Tuple, ast.keyword)):
            node, above = above, self.file.parents.get(above)
        if isinstance(above, ast.Subscript):
            return above.slice is node
        return isinstance(above, ast.Call) and bool(self.file.dotted(above.func))

    def _return(self, function: ast.AST, kind: Kind) -> None:
        new = join(self.returns.get(function, False), kind)
        if new != self.returns.get(function, False):
            self.returns[function], self.changed = new, True

    def _pass_on(self, node: ast.Call) -> None:
        targets = self._targets(node.func)
        for function, skip in targets:
            if function not in self.inner or self.inner[function].kernel:
                continue
            names = [one.arg for one in [*function.args.posonlyargs, *function.args.args]][skip:]
            rest, more = function.args.vararg, function.args.kwarg
            for at, argument in enumerate(node.args):
                if isinstance(argument, ast.Starred):
                    for name in names[at:]:
                        self._set(self.inner[function], name, self.kind(argument))
                elif at < len(names):
                    self._set(self.inner[function], names[at], self.kind(argument))
                if rest and (at >= len(names) or isinstance(argument, ast.Starred)):
                    self._set(self.inner[function], rest.arg, (self.kind(argument),))
            for keyword in node.keywords:
                if not keyword.arg:
                    if any_tensor(self.kind(keyword.value)):
                        self._give_all(function)
                elif keyword.arg in {*names, *(one.arg for one in function.args.kwonlyargs)}:
                    self._set(self.inner[function], keyword.arg, self.kind(keyword.value))
                elif more:
                    self._set(self.inner[function], more.arg, (self.kind(keyword.value),))
        match node.func:
            case ast.Attribute(ast.Name() as base, "append" | "insert" | "add" | "extend"):
                for argument in node.args[-1:]:
                    kind = self.kind(argument)
                    self._give(base, (element(kind) if node.func.attr == "extend" else kind,), to_load=True)
        higher = isinstance(node.func, ast.Name) and node.func.id in ("map", "filter", "sorted", "min", "max")
        hidden = higher or (not targets and self._unnamed(node))
        if hidden and not self.wild and any(map(any_tensor, self._arguments(node))):
            self.wild = self.changed = True
            for known in self.inner:
                if isinstance(known, ast.Lambda) and not self._for_triton(known):
                    self._give_all(known)

    def _give_all(self, function: Function, skip: int = 0, numbers: Collection[str] = ()) -> None:
        """Every parameter may be a tensor, but for those with a scalar's annotation or default."""
        args = function.args
        first = [*args.posonlyargs, *args.args]
        defaults = {one.arg: default for one, default in _defaults(args)}
        for one in [*first[skip:], *args.kwonlyargs]:
            scalar = isinstance(one.annotation, ast.Name) and one.annotation.id in SCALARS
            default = defaults.get(one.arg)
            scalar |= isinstance(default, ast.Constant) and default.value is not None
            scalar |= one.arg in numbers
            self._set(self.inner[function], one.arg, not scalar)
        if args.vararg:
            self._set(self.inner[function], args.vararg.arg, (True,))
        if args.kwarg:
            self._set(self.inner[function], args.kwarg.arg, (True,))

    def _take_defaults(self, function: ast.FunctionDef | ast.Lambda) -> None:
        for one, default in _defaults(function.args):
            self._set(self.inner[function], one.arg, self.kind(default))

    def _give(self, target: ast.AST, kind: Kind, to_load: bool = False) -> None:
        match target:
            case ast.Name(name) if to_load or isinstance(target.ctx, ast.Store):
                self._set(self.file.scopes[target].find(name), name, kind)
            case ast.Tuple(parts) | ast.List(parts):
                starred = any(isinstance(part, ast.Starred) for part in parts)
                kinds = (element(kind),) * len(parts)
                if isinstance(kind, tuple) and len(kind) == len(parts) and not starred:
                    kinds = kind
                for part, one in zip(parts, kinds, strict=True):
                    self._give(part, one)
            case ast.Starred(value):
                self._give(value, (element(kind),))
            case ast.Attribute(ast.Name(), attr) if any_tensor(kind) and attr not in self.attributes:
                self.attributes.add(attr)
                self.changed = True
            case ast.Subscript(ast.Name() as base) if any_tensor(kind):
                self._give(base, (kind,), to_load=True)

    def _set(self, scope: Scope | None, name: str, kind: Kind) -> None:
        if scope is None:
            return
        old = self.names.get((scope, name), False)
        new = _capped(join(old, kind))
        if new != old:
            self.names[scope, name], self.changed = new, True

    def computations(self) -> Iterator[tuple[ast.AST, str]]:
        """Each place of host code that computes with a tensor, and the operator or function that does."""
        for node in self.nodes:
            match node:
                case ast.BinOp(left, op, right) | ast.AugAssign(left, op, right):
                    text = isinstance(left, ast.Constant) and isinstance(left.value, str)
                    if not text and (self.kind(left) is True or self.kind(right) is True):
                        yield node, type(op).__name__
                case ast.UnaryOp(op, value) if not isinstance(op, ast.Not) and self.kind(value) is True:
                    yield node, type(op).__name__
                case ast.Compare(left, ops, rights):
                    sides = [left, *rights]
                    for at, comparison in enumerate(ops):
                        plain = isinstance(comparison, (ast.Is, ast.IsNot, ast.In, ast.NotIn))
                        if not plain and True in (self.kind(sides[at]), self.kind(sides[at + 1])):
                            yield node, type(comparison).__name__
                case ast.Call(ast.Name(name), arguments) if name in ARITHMETIC:
                    if not self.file.scopes[node].find(name) and any(
                        any_tensor(self.kind(a)) for a in arguments
                    ):
                        yield node, name
                case ast.Name(name, ast.Load()) if self.wild and name in ARITHMETIC:
                    call = self.file.parents.get(node)
                    called = isinstance(call, ast.Call) and call.func is node
                    if not called and not self.file.scopes[node].find(name):
                        yield node, name
