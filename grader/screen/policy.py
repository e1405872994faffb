"""What a lab submission may use: an allow-list over its syntax tree; never executes a line of it.

Nothing is permitted that the lists in policy_names do not hold. The screen makes a bypass a deliberate act;
what a determined attacker may reach is for the worker's confinement and for the judge's own checks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from grader.course.parts import Part
from grader.course.spec import Exercise, Lab, Verdict
from grader.course.submission import Submission
from grader.results.findings import Frame
from grader.results.outcome import MAX_FRAMES, Outcome
from grader.screen import names
from grader.screen.definitions import of_call, of_class, of_defaults, of_function, text
from grader.screen.launches import missing_launch
from grader.screen.scopes import MUTABLE, PYTHON_OWN, File, Scope
from grader.screen.tensors import Tensors, any_tensor
from grader.system.text import one_line, printable

METHODS = frozenset({"forward", "backward", "setup_context"})
LAZY = frozenset({"map", "zip", "filter", "enumerate", "reversed"})
USED_UP = frozenset({"list", "tuple", "set", "dict", "sorted", "sum", "min", "max", "any", "all"})
WORK = "the work is to be done in a @triton.jit function"
LONGEST = 200_000  # characters; a lab file has a few thousand
LONG = f"a file of more than {LONGEST} characters is not permitted; a lab file has a few hundred lines"
DEEP = "the file is nested too deeply to be looked at; shorter expressions and flatter blocks are permitted"
INSTEAD = {
    "Try": "`try` is not permitted; an error is to be seen, so let it be raised",
    "TryStar": "`try` is not permitted; an error is to be seen, so let it be raised",
    "Delete": "`del` is not permitted; a local name ends with its function",
    "Global": "`global` is not permitted; pass values as arguments, and keep no state between calls",
    "Nonlocal": "`nonlocal` is not permitted; pass values as arguments, and keep no state between calls",
}


def screen(
    submission: Submission, lab: Lab, exercise: Exercise, parts: Sequence[Part] = ()
) -> Outcome | None:
    """POLICY with the lines that are not permitted, or None; `parts` are other files that it imports."""
    graded = {one.name for one in lab.exercises if one.file == exercise.file} | {exercise.name}
    own = Own.of(parts)

    def launch_of(file: File) -> Iterator[tuple[int, str, str]]:
        todos = submission.open_todos_of(exercise.name)
        if missing := missing_launch(file, todos, exercise.name, own.functions):
            yield (*missing, exercise.name)

    return _screened(submission, lab, graded, own, launch_of)


def screen_part(part: Part, lab: Lab, parts: Sequence[Part] = ()) -> Outcome | None:
    """The same for another file of the student, of which some functions are called; `parts` are its own."""
    graded = {one.name for one in lab.exercises if one.file == part.submission.name} | part.names
    return _screened(part.submission, lab, graded, Own.of(parts), lambda _: iter(()))


@dataclass(frozen=True)
class Own:
    """Full names that other files of the student define."""

    functions: frozenset[str] = frozenset()
    constants: frozenset[str] = frozenset()

    @classmethod
    def of(cls, parts: Sequence[Part]) -> Own:
        """The names of some files."""
        functions = frozenset(f"{part.module}.{name}" for part in parts for name in part.functions)
        constants = frozenset(f"{part.module}.{name}" for part in parts for name in part.constants)
        return cls(functions, constants - functions)


def _screened(
    submission: Submission,
    lab: Lab,
    graded: Collection[str],
    own: Own,
    launch_of: Callable[[File], Iterator[tuple[int, str, str]]],
) -> Outcome | None:
    if len(submission.text) > LONGEST:
        return Outcome(Verdict.POLICY, where=LONG)
    try:
        file = File(submission.text, submission.tree)
        screened = Screen(file, lab, set(graded), own)
        found = sorted(dict.fromkeys(screened.violations()), key=lambda one: one[0])
        found = found or list(launch_of(file))
    except (RecursionError, MemoryError):
        return Outcome(Verdict.POLICY, where=DEEP)
    except (SyntaxError, ValueError):  # whoever compiles the file says so
        return None
    if not found:
        return None
    frames: dict[int, Frame] = {}
    for line, _, function in found:
        code = file.lines[line - 1] if 0 < line <= len(file.lines) else ""
        frames.setdefault(line, Frame(line=line, function=function, code=one_line(code)))
    line, words, _ = found[0]
    where = f"line {line}: {printable(words)}"
    return Outcome(Verdict.POLICY, where=where, frames=tuple(frames.values())[:MAX_FRAMES])


class Screen:
    """The rules for one file, each a look at one node and its surroundings."""

    def __init__(self, file: File, lab: Lab, graded: set[str], own: Own):
        self.file = file
        # Of a given module its own names alone: what it imports itself would open all of Triton.
        given = {f"{module}.{name}" for module, own in lab.given.items() for name in own}
        called = {f"torch.{name}" for one in lab.functions if one.name in graded for name in one.may_call}
        self.names = (
            names.NAMES
            | names.single_names(lab.also_allowed)
            | given
            | called
            | own.functions
            | own.constants
        )
        self.open = names.open_modules(lab.also_allowed)
        known = [*self.names, *(f"{module}.any" for module in self.open)]
        self.modules = {one.rsplit(".", cut)[0] for one in known for cut in range(1, one.count(".") + 1)}
        numbers = {name for one in lab.functions for name in one.numbers}
        self.tensors = Tensors(file, graded, numbers, own.functions)
        nodes = list(file.scopes)
        self.fields = {
            part.target.id
            for node in nodes
            if isinstance(node, ast.ClassDef)
            for part in node.body
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
        }
        self.generators = {
            file.scopes[node].node for node in nodes if isinstance(node, (ast.Yield, ast.YieldFrom))
        }
        kernels = {scope.node for scope in file.scopes.values() if scope.kernel}
        self.parameters = {
            arg.arg
            for node in kernels
            if isinstance(node, ast.FunctionDef)
            for arg in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        }

    def violations(self) -> Iterator[tuple[int, str, str]]:
        """Line, what is not permitted with what is wanted instead, and the function, for each violation."""
        for node, scope in self.file.scopes.items():
            for words in self._look(node, scope):
                yield self._line(node), words, scope.function
        for node, operator in self.tensors.computations():
            words = f"{text(node)} computes with a tensor in host code ({operator}); {WORK}"
            yield self._line(node), words, self.file.scopes[node].function

    def _line(self, node: ast.AST) -> int:
        while not hasattr(node, "lineno") and node in self.file.parents:
            node = self.file.parents[node]
        return getattr(node, "lineno", 1)

    def _look(self, node: ast.AST, scope: Scope) -> Iterator[str]:
        kind = type(node).__name__
        if kind not in names.NODES and not isinstance(node, ast.Del):
            yield INSTEAD.get(kind, f"{kind} ({text(node)}) is not permitted; a lab file does without")
        for name in _identifiers(node):
            if name.startswith("__"):
                yield f"`{name}` is not permitted; names with two underscores belong to Python"
        match node:
            case ast.Import() | ast.ImportFrom():
                yield from self._import(node)
            case ast.Attribute():
                yield from self._attribute(node, scope)
            case ast.Name():
                yield from self._name(node, scope)
            case ast.FunctionDef():
                yield from of_function(self.file, self.names - names.NAMES, node, scope)
            case ast.Lambda():
                yield from of_defaults(self.file, node)
            case ast.ClassDef():
                yield from of_class(self.file, node)
            case ast.Call():
                yield from of_call(self.file, self.parameters, node, scope)
                if scope is self.file.module and self._lazy(node):
                    yield f"{text(node)} is used up between calls; write list(...) or tuple(...) around it"
            case ast.withitem(expression):
                call = expression.func if isinstance(expression, ast.Call) else None
                if not call or self.file.dotted(call) not in names.CONTEXTS:
                    yield f"{text(expression)} after `with` is not permitted; torch.no_grad() is"
            case ast.Subscript(ctx=ast.Store()) if scope.is_function:
                if not self._own_container(node.value, scope):
                    yield f"storing to {text(node)}, not made by this function, is not permitted; {WORK}"
            case ast.MatchClass(kwd_attrs=attributes):
                for attribute in attributes:
                    if attribute not in names.HOST | self.fields:
                        yield f"`{attribute}=` in a pattern is not permitted; compare with == instead"
            case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()) if not scope.kernel:
                yield f"{text(node)}, a product of matrices by PyTorch, is not permitted; {WORK}"
            case ast.AugAssign(ast.Name(name), _, value) if scope.is_function and not scope.kernel:
                own = isinstance(value, ast.Name) and scope.holds_own_container(value.id)
                if (own or isinstance(value, MUTABLE)) and not scope.holds_own_container(name):
                    yield f"{text(node)} changes a list that this function did not make; make a new one"
            case ast.GeneratorExp() if scope is self.file.module and self._lazy(node):
                yield f"{text(node)} is used up between calls; write list(...) or tuple(...) around it"

    def _lazy(self, node: ast.Call | ast.GeneratorExp) -> bool:
        """Whether an expression gives its elements only once, and nothing around it takes them at once."""
        above = self.file.parents.get(node)
        if isinstance(above, (ast.For, ast.comprehension, ast.Starred)):
            return False
        if (
            isinstance(above, ast.Call)
            and isinstance(above.func, ast.Name)
            and above.func.id in USED_UP | LAZY
        ):
            return False
        if isinstance(node, ast.GeneratorExp):
            return True
        if isinstance(node.func, ast.Name) and node.func.id in LAZY:
            return True
        own = self.file.functions_named(node.func)
        return self.file.dotted(node.func) == "itertools.product" or not self.generators.isdisjoint(own)

    def _import(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        wanted = "a lab needs torch, triton, math and typing only"
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name not in self.modules:
                    yield f"`import {alias.name}` is not permitted; {wanted}"
            return
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            full = f"{module}.{alias.name}"
            if full == "__future__.annotations":
                continue
            if alias.name == "*":
                yield f"`from {module} import *` is not permitted; name what you need"
            elif full not in self.modules and self._allowed(full) != ():
                yield f"`from {module} import {alias.name}` is not permitted; {self._instead(full, wanted)}"

    def _instead(self, full: str, wanted: str) -> str:
        root = full.partition(".")[0]
        if root == "torch":
            return f"of torch a lab needs dtypes, allocation and checks, and {WORK}"
        if root == "triton":
            return f"{full.rpartition('.')[2]} is not among the names in labs/README.md, and {WORK}"
        return wanted

    def _allowed(self, full: str) -> tuple[str, ...] | None:
        """Attributes that follow the longest permitted name that `full` begins with; None without one."""
        parts = full.split(".")
        for cut in range(len(parts), 0, -1):
            head, last = ".".join(parts[: cut - 1]), parts[cut - 1]
            if ".".join(parts[:cut]) in self.names or (head in self.open and names.public(last)):
                return tuple(parts[cut:])
        return None

    def _module_or_name(self, full: str, written: str, scope: Scope, called: bool) -> Iterator[str]:
        if full == "__future__.annotations":
            return
        if full in self.modules:
            yield f"the module `{written}` itself as a value is not permitted; write the name wanted of it"
            return
        rest = self._allowed(full)
        if rest is None:
            yield f"`{written}` is not permitted; {self._instead(full, 'see the names in labs/README.md')}"
            return
        for at, attribute in enumerate(rest):
            yield from self._plain_attribute(attribute, scope, called and at == len(rest) - 1, tensor=False)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Iterator[str]:
        above = self.file.parents.get(node)
        called = isinstance(above, ast.Call) and above.func is node
        if full := self.file.dotted(node):
            if not (isinstance(above, ast.Attribute) and above.value is node):
                yield from self._module_or_name(full, ast.unparse(node), scope, called)
            if isinstance(node.ctx, ast.Store):
                yield f"{text(node)} = ... changes a module; a lab leaves torch and triton as they are"
            return
        context = isinstance(node.value, ast.Name) and node.value.id == self._context(scope)
        if (
            isinstance(node.ctx, ast.Store)
            and not context
            and not (node.attr == "block_shape" and scope.is_function)
        ):
            yield f"storing to {text(node)} is not permitted; only ctx and a block_shape are changed"
        elif own := self.file.method(node):
            owner, attribute = own
            methods = {part.name for part in owner.body if isinstance(part, ast.FunctionDef)} - METHODS
            if attribute not in methods | self.fields | {"apply"}:
                yield f"{text(node)} is not permitted; autograd classes are used through apply"
        elif not context:
            if node.attr in names.MUTATORS and not scope.kernel:
                if not self._own_container(node.value, scope):
                    yield f"{text(node)} changes what this function did not make; keep no state between calls"
                return
            tensor = not scope.kernel and any_tensor(self.tensors.kind(node.value))
            yield from self._plain_attribute(node.attr, scope, called, tensor)

    def _plain_attribute(self, attribute: str, scope: Scope, called: bool, tensor: bool) -> Iterator[str]:
        if attribute in (names.KERNEL if scope.kernel else names.HOST):
            return
        if attribute in names.FIGURES | self.fields and not called and not tensor:
            return
        where = "a kernel" if scope.kernel else "host code"
        yield f"`.{attribute}` is not permitted in {where}; see the names in labs/README.md, and {WORK}"

    def _context(self, scope: Scope) -> str | None:
        """The name that a method of an autograd function gives its ctx."""
        node = scope.node
        if not isinstance(node, ast.FunctionDef) or node.name not in METHODS or not node.args.args:
            return None
        in_class = scope.parent and isinstance(scope.parent.node, ast.ClassDef)
        return node.args.args[0].arg if in_class else None

    def _own_container(self, base: ast.AST, scope: Scope) -> bool:
        return isinstance(base, ast.Name) and scope.holds_own_container(base.id)

    def _name(self, node: ast.Name, scope: Scope) -> Iterator[str]:
        name, found = node.id, scope.find(node.id)
        above = self.file.parents.get(node)
        if isinstance(node.ctx, ast.Store):
            if found and name in found.imports:
                yield f"`{name}` is imported, and a second meaning is not permitted; choose another name"
            if name in PYTHON_OWN - names.BUILTINS and not scope.is_function:
                yield f"`{name}` is a name of Python's own; choose another at module level"
            if scope is self.file.module and any_tensor(self.tensors.names.get((scope, name), False)):
                yield f"`{name}` keeps a tensor between calls; allocate inside the function"
            return
        if not found or (
            name in PYTHON_OWN - names.BUILTINS and not found.is_function and name not in found.imports
        ):
            if name in PYTHON_OWN and name not in names.BUILTINS:
                yield f"`{name}` is not permitted; the permitted names are in labs/README.md"
            elif name == "type" and not (isinstance(above, ast.Subscript) or _one_argument(above)):
                yield "`type` is permitted with one argument only"
            return
        if name in found.imports:
            if len(found.imports[name]) > 1 and not isinstance(above, ast.alias):
                yield f"`{name}` is imported twice, as different things; choose another name"
            if not (isinstance(above, ast.Attribute) and above.value is node):
                called = isinstance(above, ast.Call) and above.func is node
                yield from self._module_or_name(self.file.dotted(node) or name, name, scope, called)
        elif name in self.file.wrapped and found is self.file.module and not scope.kernel:
            wraps = isinstance(above, ast.Call) and self.file.dotted(above.func) in names.JIT
            if not wraps:
                yield f"`{name}` in host code is not permitted; it became a kernel, so use that"


def _identifiers(node: ast.AST) -> Iterator[str]:
    """Names that a node spells out."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname for alias in node.names if alias.asname)
        yield from (part for alias in node.names for part in alias.name.split("."))
        module = getattr(node, "module", None) or ""
        yield from (part for part in module.split(".") if module != "__future__")
        return
    for field in ("id", "attr", "arg", "name", "rest"):
        text = getattr(node, field, None)
        if isinstance(text, str):
            yield text


def _one_argument(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords
