"""Where host code computes with tensors: `x + y` outside a kernel is PyTorch's work as much as torch.add."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, Literal, TypeAlias

from grader.screen.language import ALLOCATE, words
from grader.screen.scopes import File, Function, Scope, parameters

ROUNDS, DEPTH, LEAVES = 12, 4, 256  # kinds only ever grow; deeper nests count as tensors
MAKERS = frozenset(f"torch.{name}" for name in ALLOCATE)
GIVES_TENSOR = words(
    "new_empty new_empty_strided new_zeros new_full zero_ fill_ contiguous to detach view view_as reshape "
    "t T mT transpose permute flatten squeeze unsqueeze expand expand_as requires_grad_"
)
ARITHMETIC = words("sum abs pow divmod round min max any all")
READS = words("float int bool list tuple set frozenset dict sorted zip enumerate reversed")
HIGHER = words("sorted min max")  # they call their `key`
FILLED_WITH = words("fill_ new_full torch.full")

# What an expression may be: False for no tensor, True for one, a tuple of kinds for a list, tuple or dict.
# ARGS is what Triton gives to a function: the named arguments of a launch, or configs.
ARGS: Final = "args"
Kind: TypeAlias = "bool | Literal['args'] | tuple[Kind, ...]"


def join(one: Kind, other: Kind, depth: int = 0) -> Kind:
    """The kind of a value that may be either."""
    if one == other or other is False:
        return one
    if one is False:
        return other
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other) and depth < DEPTH:
        return tuple(join(a, b, depth + 1) for a, b in zip(one, other, strict=True))
    if isinstance(one, tuple) and isinstance(other, tuple) and depth < DEPTH:
        return (join(element(one), element(other), depth + 1),)
    return any_tensor(one) or any_tensor(other) or (ARGS in (element(one), element(other)) and ARGS)


def any_tensor(kind: Kind) -> bool:
    """Whether a tensor may be in there."""
    return any(map(any_tensor, kind)) if isinstance(kind, tuple) else kind is True


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
    if not isinstance(kind, tuple):
        return kind
    leaves, depth = _size(kind)
    return (kind if leaves <= LEAVES else (element(kind),)) if depth <= DEPTH else any_tensor(kind)


def _size(kind: Kind) -> tuple[int, int]:
    sizes = [_size(part) for part in kind] if isinstance(kind, tuple) else []
    return sum(leaves for leaves, _ in sizes) + (not sizes), max(
        (depth for _, depth in sizes), default=-1
    ) + 1


class Tensors:
    """Kinds of all names of a file's host code, from the graded functions and the allocations on."""

    def __init__(
        self,
        file: File,
        graded: Iterable[str],
        numbers: Collection[str] = (),
        imported: Mapping[str, Kind] | None = None,
    ):
        """`graded` functions get tensors, but for their parameters named in `numbers`.

        `imported` has what functions of other files return.
        """
        self.file, self.makers = file, dict.fromkeys(MAKERS, True) | dict(imported or {})
        self.names: dict[tuple[Scope, str], Kind] = {}
        self.returns: dict[ast.AST, Kind] = {}
        self.attributes: set[str] = set()  # of ctx
        self.inner = {scope.node: scope for scope in file.scopes.values()}
        self.nodes = [node for node, scope in file.scopes.items() if not scope.kernel]
        self.kernels = [node for node in file.scopes if file.is_kernel(node)]
        self.for_triton = [
            one for one in self.nodes if isinstance(one, ast.Name | ast.Lambda) and self._handed(one)
        ]
        self.changed = True
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef) and node in self.inner:
                if node in file.tree.body and node.name in graded:
                    self._give_all(node, numbers=numbers)
                elif node.name == "backward":
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
                    return _capped(first + second)
                return join(first, second) if any_tensor(first) or any_tensor(second) else False
            case ast.UnaryOp(op, value):
                return not isinstance(op, ast.Not) and self.kind(value) is True
            case ast.Subscript(value, at):
                return self._item(self.kind(value), at)
            case ast.Attribute(value, attr):
                if attr == "saved_tensors":
                    return (True,)
                if attr in self.attributes and isinstance(value, ast.Name):
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
        if full := self.file.dotted(func):
            return self.makers.get(full, False)
        if targets := self._targets(func):
            return element(tuple(self.returns.get(target, False) for target, _ in targets))
        match func:
            case ast.Name("tuple" | "list" | "sorted" | "reversed" | "set" | "frozenset") if node.args:
                kind = self.kind(node.args[0])
                return kind if isinstance(kind, tuple) else (kind is True,)
            case ast.Name("enumerate") if node.args:
                return ((False, element(self.kind(node.args[0]))),)
            case ast.Name("zip"):
                return (tuple(element(self.kind(argument)) for argument in node.args),)
            case ast.Name(name) if name in ARITHMETIC or self.file.class_of(func):
                return any(any_tensor(self.kind(argument)) for argument in node.args)
            case ast.Attribute(value, attr):
                kind = self.kind(value)
                if isinstance(kind, tuple):
                    return (tuple((False, one) for one in kind)) if attr == "items" else element(kind)
                if kind == ARGS:
                    return ARGS if attr in ("get", *GIVES_TENSOR) else False
                return kind is True and attr in GIVES_TENSOR
        return False

    def _targets(self, func: ast.AST) -> list[tuple[Function, int]]:
        """Functions that a call enters, each with the number of parameters that PyTorch fills."""
        if method := self.file.method(func):
            owner, name = method
            wanted, skip = ("forward", 1) if name == "apply" else (name, 0)
            methods = [one for one in owner.body if isinstance(one, ast.FunctionDef)]
            return [(one, skip) for one in methods if one.name == wanted]
        return [(one, 0) for one in self.file.functions_of(func) if one not in self.kernels]

    def _handed(self, node: ast.Name | ast.Lambda) -> bool:
        """Whether Triton calls this value: a grid, a hook, or part of the arguments of triton.autotune."""
        child: ast.AST = node
        above = self.file.parents.get(node)
        while isinstance(above, ast.Dict | ast.List | ast.Tuple | ast.keyword | ast.IfExp):
            child, above = above, self.file.parents.get(above)
        if isinstance(above, ast.Subscript):
            return above.slice is child
        if isinstance(above, ast.Call) and above.func is not child:
            named = isinstance(child, ast.keyword) and child.arg == "grid"
            return named or (self.file.dotted(above.func) or "").startswith("triton.")
        return False

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
            case ast.Return(value) if value:
                self._return(self.file.scopes[node].node, self.kind(value))
            case ast.Yield(value) if value:
                self._return(self.file.scopes[node].node, (self.kind(value),))
            case ast.Lambda():
                self._return(node, self.kind(node.body))
            case ast.Call():
                self._pass_on(node)
        if node in self.for_triton:
            for function in self.file.functions_of(node):
                for one in parameters(function) if function not in self.kernels else ():
                    self._set(self.inner[function], one.arg, ARGS)

    def _return(self, function: ast.AST, kind: Kind) -> None:
        new = _capped(join(self.returns.get(function, False), kind))
        if new != self.returns.get(function, False):
            self.returns[function], self.changed = new, True

    def _pass_on(self, node: ast.Call) -> None:
        for function, skip in self._targets(node.func):
            if function in self.inner:
                for name, kind in self._bound(node, function, skip):
                    self._set(self.inner[function], name, kind)
        match node.func:
            case ast.Name(name) if name in HIGHER and node.args:
                kind = element(self.kind(node.args[0]))
                for function in (one for key in node.keywords for one in self.file.functions_of(key.value)):
                    for parameter in parameters(function):
                        self._set(self.inner[function], parameter.arg, kind)
            case ast.Attribute(ast.Name() as base, "append" | "insert" | "add" | "extend" as attr):
                for argument in node.args[-1:]:
                    kind = self.kind(argument)
                    self._give(base, (element(kind) if attr == "extend" else kind,), to_load=True)

    def _bound(self, node: ast.Call, function: Function, skip: int) -> Iterator[tuple[str, Kind]]:
        """Parameter and kind for each value that a call hands to a function."""
        positional = [one.arg for one in [*function.args.posonlyargs, *function.args.args]][skip:]
        rest, more = function.args.vararg, function.args.kwarg
        for at, argument in enumerate(node.args):
            kind, many = self.kind(argument), isinstance(argument, ast.Starred)
            yield from ((name, kind) for name in (positional[at:] if many else positional[at : at + 1]))
            if rest and (many or at >= len(positional)):
                yield rest.arg, (kind,)
        for keyword in node.keywords:
            kind, every = self.kind(keyword.value), {one.arg for one in parameters(function)}
            if not keyword.arg:
                yield from ((name, True) for name in every if any_tensor(kind))
            elif keyword.arg in every:
                yield keyword.arg, kind
            elif more:
                yield more.arg, (kind,)

    def _give_all(self, function: ast.FunctionDef, skip: int = 0, numbers: Collection[str] = ()) -> None:
        """Every parameter may be a tensor, but for those with a scalar's annotation or default."""
        args = function.args
        first = [*args.posonlyargs, *args.args]
        with_default = [*first[len(first) - len(args.defaults) :], *args.kwonlyargs]
        defaults = {
            id(one): value
            for one, value in zip(with_default, [*args.defaults, *args.kw_defaults], strict=True)
        }
        for one in parameters(function)[skip:]:
            default = defaults.get(id(one))
            scalar = isinstance(one.annotation, ast.Name) and one.annotation.id in (
                "int",
                "float",
                "bool",
                "str",
            )
            scalar |= isinstance(default, ast.Constant) and default.value is not None
            many = one in (args.vararg, args.kwarg)
            self._set(self.inner[function], one.arg, (True,) if many else not (scalar or one.arg in numbers))

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
        """Each place of host code that computes with a tensor or reads one, and what it does."""
        for node in self.nodes:
            match node:
                case ast.BinOp(left, op, right) | ast.AugAssign(left, op, right):
                    text = isinstance(left, ast.Constant | ast.JoinedStr) and not _is_number(left)
                    if not text and (self.kind(left) is True or self.kind(right) is True):
                        yield node, f"computes with a tensor in host code ({type(op).__name__})"
                    elif isinstance(node, ast.AugAssign) and self.kind(left) == ARGS:
                        yield node, "changes what Triton gave in place, and that may be a tensor"
                case ast.UnaryOp(op, value) if not isinstance(op, ast.Not) and self.kind(value) is True:
                    yield node, f"computes with a tensor in host code ({type(op).__name__})"
                case ast.Compare(left, ops, rights):
                    sides = [left, *rights]
                    for at, comparison in enumerate(ops):
                        plain = isinstance(comparison, ast.Is | ast.IsNot | ast.In | ast.NotIn)
                        if not plain and True in (self.kind(sides[at]), self.kind(sides[at + 1])):
                            yield node, f"computes with a tensor in host code ({type(comparison).__name__})"
                case ast.Call(func, arguments):
                    name = func.id if isinstance(func, ast.Name) and not self.file.values(func) else ""
                    attr = func.attr if isinstance(func, ast.Attribute) else ""
                    kinds = [self.kind(argument) for argument in arguments]
                    if name in ARITHMETIC and any(map(any_tensor, kinds)):
                        yield node, f"computes with a tensor in host code ({name})"
                    elif name in READS and True in kinds:
                        yield node, f"reads a tensor in host code ({name})"
                    elif FILLED_WITH & {attr, self.file.dotted(func)} and any(map(any_tensor, kinds)):
                        yield node, f"copies a tensor in host code ({attr})"
                case ast.For(iter=values) | ast.comprehension(iter=values) if self.kind(values) is True:
                    yield values, "is a tensor, read element by element in host code"
        for handed in self.for_triton:
            parent = self.file.above(handed, ast.keyword, ast.Dict)
            allocator = (
                isinstance(parent, ast.Call) and self.file.dotted(parent.func) == "triton.set_allocator"
            )
            for function in self.file.functions_of(handed) if not allocator else ():
                if any_tensor(self.returns.get(function, False)):
                    yield handed, "gives a tensor to Triton, which wants numbers or configs here"


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and not isinstance(node.value, str)
