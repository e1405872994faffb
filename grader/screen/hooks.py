"""What the autotuner may run before a kernel: functions that set the block_shape of descriptors alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.screen.scopes import COMPREHENSIONS, File, Scope

# Of Python and Triton: they read numbers, names and types, and run nothing of the file.
READS = frozenset(
    {"min", "max", "len", "int", "bool", "abs", "range", "zip", "enumerate", "isinstance", "hasattr"}
)
READS_OF_TRITON = frozenset({"triton.cdiv", "triton.next_power_of_2"})
READS_OF_ARGUMENTS = frozenset({"get", "items", "keys", "values"})
GATHERS = frozenset({"range", "zip", "enumerate", "reversed", "sorted", "list", "tuple", "min", "max"})
LITERAL = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Tuple, ast.List, ast.Set, ast.Starred)


class Hooks:
    """Which values of a file may be given as a `pre_hook`."""

    def __init__(self, file: File):
        self._file = file
        # Answers that are known, so that no file makes this slow; while one is looked for it is no.
        self._harmless: dict[tuple[Scope, str], bool] = {}
        self._plain: dict[tuple[Scope, str], bool] = {}
        self._alone: dict[ast.FunctionDef, bool] = {}

    def is_harmless(self, value: ast.AST | None) -> bool:
        """Return whether a hook sets a block_shape alone; of a parameter, whether all that is passed does."""
        if isinstance(value, ast.Constant) and value.value is None:
            return True
        found = self._file.scopes[value].find(value.id) if isinstance(value, ast.Name) else None
        if (
            isinstance(value, ast.Name)
            and found
            and isinstance(found.node, ast.FunctionDef)
            and found.values[value.id] == [None]  # a parameter, which is given no other value
        ):
            key = found, value.id
            if key not in self._harmless:
                self._harmless[key] = False
                passed = list(self._passed(found.node, value.id))
                self._harmless[key] = bool(passed) and all(map(self.is_harmless, passed))
            return self._harmless[key]
        functions = self._file.functions_of(value)
        return bool(functions) and all(map(self._sets_alone, functions))

    def _passed(self, function: ast.FunctionDef, name: str) -> Iterator[ast.AST | None]:
        """Yield what the file's calls of a function, and its default, give a parameter; None where unknown.

        Numbers that a call unpacks, as of a tuple of sizes, are no hooks; what stands behind them may be one.
        """
        args = function.args
        first = [one.arg for one in [*args.posonlyargs, *args.args]]
        defaults = dict(zip(reversed(first), reversed(args.defaults), strict=False))
        defaults |= {
            one.arg: value for one, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value
        }
        if name in defaults:
            yield defaults[name]
        for node in self._file.scopes:
            if isinstance(node, ast.Call) and function in self._file.functions_of(node.func):
                named = {keyword.arg: keyword.value for keyword in node.keywords}
                starred = [at for at, one in enumerate(node.args) if isinstance(one, ast.Starred)]
                if None in named or not all(self._is_plain(node.args[at]) for at in starred):
                    yield None
                elif name in named:
                    yield named[name]
                elif starred:
                    behind = (one for one in node.args[starred[0] :] if not isinstance(one, ast.Starred))
                    yield from (one for one in behind if not self._is_plain(one))
                    at = first.index(name) if name in first else len(node.args)
                    if at < starred[0]:
                        yield node.args[at]
                elif name in first and first.index(name) < len(node.args):
                    yield node.args[first.index(name)]
                elif name not in defaults:
                    yield None

    def _is_plain(self, value: ast.AST) -> bool:
        """Return whether a value holds numbers and texts, and so no function.

        Of names only those of the module and of its comprehensions can be: a parameter may be anything.
        """
        match value:
            case ast.Name():
                found = self._file.scopes[value].find(value.id)
                return found is not None and self._holds_plain(found, value.id)
            case ast.Call(func, arguments, []):
                own = isinstance(func, ast.Name) and func.id in GATHERS and not self._file.values(func)
                return (own or self._file.dotted(func) == "itertools.product") and all(
                    map(self._is_plain, arguments)
                )
        parts = [one for one in ast.iter_child_nodes(value) if isinstance(one, ast.expr)]
        return isinstance(value, LITERAL) and all(map(self._is_plain, parts))

    def _holds_plain(self, scope: Scope, name: str) -> bool:
        key = scope, name
        if key not in self._plain:
            self._plain[key] = False
            sources = list(self._sources(scope, name)) if self._is_of_the_module(scope) else []
            self._plain[key] = bool(sources) and all(one and self._is_plain(one) for one in sources)
        return self._plain[key]

    def _is_of_the_module(self, scope: Scope) -> bool:
        while isinstance(scope.node, COMPREHENSIONS) and scope.parent:
            scope = scope.parent
        return isinstance(scope.node, ast.Module)

    def _sources(self, scope: Scope, name: str) -> Iterator[ast.AST | None]:
        """Yield what a name is taken from, at each place that binds it; None where that is not seen."""
        for node, inside in self._file.scopes.items():
            if not (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)):
                continue
            if inside.find(name) is scope:
                match self._file.above(node, ast.Tuple, ast.List, ast.Starred):
                    case ast.Assign(value=source) | ast.AnnAssign(value=source):
                        yield source
                    case ast.For(iter=source) | ast.comprehension(iter=source):
                        yield source
                    case _:
                        yield None
        if not isinstance(scope.node, COMPREHENSIONS) and any(
            isinstance(one, ast.stmt) for one in scope.values[name]
        ):
            yield None  # a function, a class or an import

    def _sets_alone(self, function: ast.AST) -> bool:
        if not isinstance(function, ast.FunctionDef):
            return False
        if function not in self._alone:
            self._alone[function] = False
            self._alone[function] = all(map(self._only_sets, function.body))
        return self._alone[function]

    def _only_sets(self, statement: ast.stmt) -> bool:
        """Return whether a statement only reads the arguments, names values, and sets a block_shape."""
        match statement:
            case ast.Assign(targets, value):
                return self._only_reads(value) and all(map(_is_target, targets))
            case ast.AnnAssign(target=target, value=value):
                return (value is None or self._only_reads(value)) and _is_target(target)
            case ast.If(test, body, orelse):
                return self._only_reads(test) and all(map(self._only_sets, [*body, *orelse]))
            case ast.For(target, values, body, orelse):
                names = all(isinstance(one, ast.Name) for one in _parts_of(target))
                return names and self._only_reads(values) and all(map(self._only_sets, [*body, *orelse]))
            case ast.Expr(ast.Call(func, arguments, keywords)):
                given = [*arguments, *(one.value for one in keywords)]
                functions = self._file.functions_of(func)
                return (
                    bool(functions)
                    and all(map(self._only_reads, given))
                    and all(map(self._sets_alone, functions))
                )
            case ast.Return(None | ast.Constant(None)) | ast.Pass() | ast.Expr(ast.Constant()):
                return True
        return False

    def _only_reads(self, value: ast.AST) -> bool:
        """Return whether an expression calls nothing but what reads numbers, and binds nothing."""
        for node in ast.walk(value):
            if isinstance(node, (ast.NamedExpr, ast.Lambda, ast.Yield, ast.YieldFrom, ast.Await)):
                return False
            if isinstance(node, ast.Call) and (node.keywords or not self._reads(node.func)):
                return False  # a keyword may be a function that Python calls, as the `key` of min
        return True

    def _reads(self, func: ast.AST) -> bool:
        match func:
            case ast.Name(name) if name in READS:
                return not self._file.values(func)
            case ast.Attribute(ast.Name() as base, name) if name in READS_OF_ARGUMENTS:
                found = self._file.scopes[base].find(base.id)
                return found is not None and isinstance(found.node, ast.FunctionDef)
        return self._file.dotted(func) in READS_OF_TRITON


def _parts_of(target: ast.expr) -> list[ast.expr]:
    """Return what an assignment binds: the target, or the targets in a tuple."""
    if isinstance(target, ast.Tuple | ast.List):
        return [inner for part in target.elts for inner in _parts_of(part)]
    return [target]


def _is_target(target: ast.expr) -> bool:
    """Return whether an assignment binds names and sets a block_shape, and nothing else."""
    return all(
        isinstance(one, ast.Name) or getattr(one, "attr", "") == "block_shape" for one in _parts_of(target)
    )
