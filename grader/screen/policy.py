"""Whether a lab file is written in the language of language.py; never executes a line of it.

What is not in the language is refused. What a program of the language can still reach is for the worker's
confinement and for the judge's own checks.
"""

from __future__ import annotations

import ast
import itertools
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from grader.course.parts import Part
from grader.course.spec import Exercise, Lab, Verdict
from grader.course.submission import Submission
from grader.results.findings import Frame
from grader.results.outcome import MAX_FRAMES, Outcome
from grader.screen import language
from grader.screen.definitions import looks_like_another
from grader.screen.forms import (
    LAZY,
    Unquoted,
    constant,
    is_literal,
    misplaced,
    of_class,
    plain_annotation,
    text,
)
from grader.screen.hooks import Hooks
from grader.screen.launches import missing_launch
from grader.screen.scopes import MUTABLE, PYTHON_OWN, File, Scope, parameters, run_when_imported
from grader.screen.tensors import ARGS, Kind, Tensors, any_tensor
from grader.system.text import one_line, printable

METHODS = frozenset({"forward", "backward", "setup_context"})
WORK = "the work is to be done in a @triton.jit function"
PRODUCT = "the function `torch.mm` is"
PAGE = "see the names in labs/LANGUAGE.md"
LONGEST = 200_000  # characters; a lab file has a few thousand
LONG = f"a file of more than {LONGEST} characters is not permitted; a lab file has a few hundred lines"
DEEP = "the file is nested too deeply to be looked at; shorter expressions and flatter blocks are permitted"
CONSTANTS = ("triton.language.constexpr", "triton.experimental.gluon.language.constexpr")
ALIASES = 8  # of types, one named by the next
CONFIG_POSITIONS = 5  # of triton.Config, before pre_hook
Violation = tuple[int, str, str]  # line, what is not permitted and what to write instead, function


def screen(
    submission: Submission, lab: Lab, exercise: Exercise, parts: Sequence[Part] = ()
) -> Outcome | None:
    """POLICY with the lines that are not permitted, or None; `parts` are other files that it imports."""
    graded = {one.name for one in lab.exercises if one.file == exercise.file} | {exercise.name}

    def launch_of(file: File, own: Own) -> Iterator[Violation]:
        todos = submission.open_todos_of(exercise.name)
        if missing := missing_launch(file, todos, exercise.name, own.functions):
            yield (*missing, exercise.name)

    return _screened(submission, lab, graded, parts, launch_of)


def screen_part(part: Part, lab: Lab, parts: Sequence[Part] = ()) -> Outcome | None:
    """The same for another file of the student, of which some functions are called; `parts` are its own."""
    graded = {one.name for one in lab.exercises if one.file == part.submission.name} | part.names
    return _screened(part.submission, lab, graded, parts, lambda *_: iter(()))


@dataclass(frozen=True)
class Own:
    """Full names that other files of the student define, and what their functions return."""

    functions: Mapping[str, Kind]
    constants: frozenset[str]

    @classmethod
    def of(cls, parts: Sequence[Part]) -> Own:
        """The names of some files, each before those that import it."""
        functions: dict[str, Kind] = {}
        for part in parts:
            file = File(run_when_imported(part.submission.parsed))
            returns = Tensors(file, part.functions, (), functions).returns
            for node in file.tree.body:
                if isinstance(node, ast.FunctionDef):
                    functions[f"{part.module}.{node.name}"] = returns.get(node, False)
        constants = frozenset(f"{part.module}.{name}" for part in parts for name in part.constants)
        return cls(functions, constants - set(functions))


def _screened(
    submission: Submission,
    lab: Lab,
    graded: Collection[str],
    parts: Sequence[Part],
    launch_of: Callable[[File, Own], Iterator[Violation]],
) -> Outcome | None:
    if len(submission.text) > LONGEST:
        return Outcome(Verdict.POLICY, where=LONG)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = run_when_imported(ast.parse(submission.text))  # a tree of its own, which it changes
        Unquoted().visit(tree)
        found = [*looks_like_another(submission.tree, submission.text), *misplaced(tree)]
        if not found:
            file, own = File(tree), Own.of(parts)
            found = list(Names(file, lab, set(graded), own).violations()) or list(launch_of(file, own))
    except (RecursionError, MemoryError):
        return Outcome(Verdict.POLICY, where=DEEP)
    except (SyntaxError, ValueError):  # whoever compiles the file says so
        return None
    if not found:
        return None
    found = sorted(dict.fromkeys(found), key=lambda one: one[0])
    frames: dict[int, Frame] = {}
    for line, _, function in found:
        frames.setdefault(line, Frame(line=line, function=function, code=one_line(submission.line(line))))
    line, words, _ = found[0]
    where = f"line {line}: {printable(words)}"
    return Outcome(Verdict.POLICY, where=where, frames=tuple(frames.values())[:MAX_FRAMES])


class Names:
    """What the names, attributes and calls of a file mean, once its forms are those of the language."""

    def __init__(self, file: File, lab: Lab, graded: set[str], own: Own):
        self.file = file
        # Of a given module its own names alone: what it imports itself would open all of Triton.
        given = {f"{module}.{name}" for module, own in lab.given.items() for name in own}
        called = {f"torch.{name}" for one in lab.functions if one.name in graded for name in one.may_call}
        single = language.SINGLE.intersection(lab.also_allowed)
        self.names = language.NAMES | single | given | called | set(own.functions) | own.constants
        self.constants = own.constants
        self.decorators = language.DECORATORS | (single & {"torch.library.triton_op"})
        self.open = language.open_modules(lab.also_allowed)
        known = [*self.names, *(f"{module}.any" for module in self.open)]
        self.modules = {one.rsplit(".", cut)[0] for one in known for cut in range(1, one.count(".") + 1)}
        numbers = {name for one in lab.functions for name in one.numbers}
        self.tensors = Tensors(file, graded, numbers, own.functions)
        self.hooks = Hooks(file)
        nodes = list(file.scopes)
        self.fields = {
            part.target.id
            for node in nodes
            if isinstance(node, ast.ClassDef)
            for part in node.body
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
        }
        self.kept = {  # on ctx
            node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
        self.generators = {
            file.scopes[node].node for node in nodes if isinstance(node, (ast.Yield, ast.YieldFrom))
        }
        kernels = [node for node in nodes if isinstance(node, ast.FunctionDef) and file.is_kernel(node)]
        self.parameters = {one.arg for node in kernels for one in parameters(node)}
        self.constexprs: dict[ast.AST, set[str]] = {
            node: {one.arg for one in parameters(node) if self._is_constexpr(one)} for node in kernels
        }
        others = {one.arg for node in kernels for one in parameters(node) if not self._is_constexpr(one)}
        self.constexpr_anywhere = self.parameters - others

    def _is_constexpr(self, parameter: ast.arg) -> bool:
        wanted = parameter.annotation
        return wanted is not None and self.file.dotted(wanted) in CONSTANTS

    def violations(self) -> Iterator[Violation]:
        """Every place that is not permitted."""
        for node, scope in self.file.scopes.items():
            for words in self._look(node, scope):
                yield self._line(node), words, scope.function
            if isinstance(node, ast.ClassDef):
                for part, words in of_class(self.file, node):
                    yield self._line(part), words, node.name
        for node, what in self.tensors.computations():
            yield self._line(node), f"{text(node)} {what}; {WORK}", self.file.scopes[node].function
        for node, scope in self.file.scopes.items():
            for words in self._callee(node) if isinstance(node, ast.Call) and not scope.kernel else ():
                yield self._line(node), words, scope.function
            if isinstance(node, ast.Name | ast.Lambda) and not self._called_by_name(node):
                words = f"the function {text(node)} as a value is not permitted here; call it by its name"
                yield self._line(node), words, scope.function

    def _line(self, node: ast.AST) -> int:
        while not hasattr(node, "lineno") and node in self.file.parents:
            node = self.file.parents[node]
        return getattr(node, "lineno", 1)

    def _look(self, node: ast.AST, scope: Scope) -> Iterator[str]:
        match node:
            case ast.Import() | ast.ImportFrom():
                yield from self._import(node)
            case ast.Attribute():
                yield from self._attribute(node, scope)
            case ast.Name():
                yield from self._name(node, scope)
            case ast.FunctionDef():
                yield from self._function(node, scope)
                yield from self._annotation(node.returns)
            case ast.arg(annotation=wanted) | ast.AnnAssign(annotation=wanted):
                yield from self._annotation(wanted)
            case ast.Call():
                yield from self._call(node, scope)
            case ast.withitem(expression):
                if (
                    not isinstance(expression, ast.Call)
                    or self.file.called(expression) not in language.CONTEXTS
                ):
                    yield f"{text(expression)} after `with` is not permitted; torch.no_grad() is"
            case ast.Subscript(ctx=ast.Store()) if scope.is_function:
                if not self._own_container(node.value, scope):
                    yield f"storing to {text(node)}, not made by this function, is not permitted; {WORK}"
            case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()) if not scope.kernel:
                instead = PRODUCT if "torch.mm" in self.names else WORK
                yield f"{text(node)}, a product of matrices by PyTorch, is not permitted; {instead}"
            case ast.AugAssign(ast.Name(name), _, value) if scope.is_function and not scope.kernel:
                own = self._own_container(value, scope) or isinstance(value, MUTABLE)
                if own and not scope.holds_own_container(name):
                    yield f"{text(node)} changes a list that this function did not make; make a new one"
        if isinstance(node, ast.GeneratorExp | ast.Call) and not scope.kernel and self._lazy(node):
            yield f"{text(node)} is used up between calls; write list(...) or tuple(...) around it"

    def _annotation(self, wanted: ast.expr | None) -> Iterator[str]:
        if wanted and (wrong := self._no_type(wanted)):
            words = f"{text(wrong)} is no type that the file imports or defines"
            yield f"the annotation {text(wanted)} is not permitted; {words}"

    def _no_type(self, wanted: ast.expr, depth: int = ALIASES) -> ast.AST | None:
        """The part of an annotation that may hold a text, which PyTorch would evaluate."""
        for node in ast.walk(wanted):
            match node:
                case ast.Attribute() if not self.file.dotted(node):
                    return node
                case ast.Subscript(value) if is_literal(node) and self.file.dotted(value) != "typing.Literal":
                    return node
                case ast.Name(name) if not self._is_type(node, name, depth):
                    return node
        return None

    def _is_type(self, node: ast.Name, name: str, depth: int) -> bool:
        found = self.file.scopes[node].find(name)
        if not found:
            return True  # one of Python's own
        if name in found.imports:
            return self.constants.isdisjoint(found.imports[name])
        return found is self.file.module and all(
            isinstance(value, ast.ClassDef)
            or (
                depth
                and isinstance(value, ast.expr)
                and plain_annotation(value)
                and not self._no_type(value, depth - 1)
            )
            for value in found.values[name]
        )

    def _import(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        wanted = "a lab needs torch, triton, math and typing only"
        if "dataclasses" in (getattr(node, "module", ""), *(alias.name for alias in node.names)):
            wanted = language.INSTEAD_OF_NAMES["dataclasses"]
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name not in self.modules:
                    yield f"`import {alias.name}` is not permitted; {wanted}"
            return
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            full = f"{module}.{alias.name}"
            if alias.name == "*":
                yield f"`from {module} import *` is not permitted; name what you need"
            elif full not in self.modules | {"__future__.annotations"} and self._rest(full) != []:
                yield f"`from {module} import {alias.name}` is not permitted; {self._instead(full, wanted)}"

    def _instead(self, full: str, wanted: str) -> str:
        if full.startswith("torch."):
            return f"of torch a lab needs dtypes, allocation and checks, and {WORK}"
        if full.startswith("triton."):
            return f"{full.rpartition('.')[2]} is not among the names in labs/LANGUAGE.md, and {WORK}"
        return wanted

    def _rest(self, full: str) -> list[str] | None:
        """Attributes that follow the longest permitted name that `full` begins with; None without one."""
        parts = full.split(".")
        for cut in range(len(parts), 0, -1):
            head, last = ".".join(parts[: cut - 1]), parts[cut - 1]
            if ".".join(parts[:cut]) in self.names or (head in self.open and language.public(last)):
                return parts[cut:]
        return None

    def _module_or_name(self, full: str, written: str, kernel: bool) -> Iterator[str]:
        if full in self.modules:
            yield f"the module `{written}` itself as a value is not permitted; write the name wanted of it"
            return
        rest = self._rest(full)
        if rest is None:
            if full != "__future__.annotations":
                yield f"`{written}` is not permitted; {self._instead(full, PAGE)}"
        elif rest:
            of_torch = full.startswith("torch.") and full.split(".")[1] not in language.DTYPES
            known = language.KERNEL if kernel else language.HOST
            if len(rest) > 1 or of_torch or rest[0] not in known:
                yield f"`.{rest[0]}` of `{written}` is not permitted; {PAGE}, and {WORK}"

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Iterator[str]:
        above = self.file.parents.get(node)
        called = isinstance(above, ast.Call) and above.func is node
        store = isinstance(node.ctx, ast.Store)
        if full := self.file.dotted(node):
            if not (isinstance(above, ast.Attribute) and above.value is node):
                yield from self._module_or_name(full, ast.unparse(node), scope.kernel)
            if store:
                yield f"{text(node)} = ... changes a module; a lab leaves torch and triton as they are"
            return
        if isinstance(node.value, ast.Name) and node.value.id == self._context(scope):
            if node.attr not in (self.kept - language.CTX if store else self.kept | language.CTX):
                yield f"`.{node.attr}` of ctx is not permitted; {PAGE}, or put it there first"
            elif node.attr in language.CTX_OWN or node.attr.startswith("_"):
                yield f"`.{node.attr}` of ctx belongs to PyTorch; choose another name"
        elif store and not (node.attr == "block_shape" and scope.is_function):
            yield f"storing to {text(node)} is not permitted; only ctx and a block_shape are changed"
        elif owner := self.file.class_of(node.value):
            methods = {part.name for part in owner.body if isinstance(part, ast.FunctionDef)} - METHODS
            named = called or isinstance(above, ast.Assign | ast.Return)
            if not named or node.attr not in methods | {"apply"}:
                yield f"{text(node)} is not permitted; autograd classes are used through apply(...)"
        elif node.attr in language.MUTATORS and not scope.kernel:
            if not called or not self._own_container(node.value, scope):
                yield f"{text(node)} changes what this function did not make; keep no state between calls"
        elif node.attr not in self._known(node, scope, called):
            if f"torch.{node.attr}" in self.names and called and not scope.kernel:
                yield f"`.{node.attr}` as a method is not permitted; the function `torch.{node.attr}` is"
                return
            where = "a kernel" if scope.kernel else "host code"
            yield f"`.{node.attr}` is not permitted in {where}; {PAGE}, and {WORK}"

    def _known(self, node: ast.Attribute, scope: Scope, called: bool) -> frozenset[str]:
        """The attributes of what is left of the dot."""
        if scope.kernel:
            return language.KERNEL | self.fields
        kind = self.tensors.kind(node.value)
        if any_tensor(kind):
            return language.TENSOR | (language.PYTHON if isinstance(kind, tuple) else frozenset())
        if kind == ARGS:  # may be a tensor
            return language.HOST - language.FILLS | self.fields
        return language.HOST | self.fields | (frozenset() if called else language.FIGURES)

    def _context(self, scope: Scope) -> str | None:
        """The name that a method of an autograd function gives its ctx."""
        node = scope.node
        in_class = scope.parent and isinstance(scope.parent.node, ast.ClassDef)
        if not in_class or not isinstance(node, ast.FunctionDef) or node.name not in METHODS:
            return None
        return node.args.args[0].arg if node.args.args else None

    def _own_container(self, base: ast.AST, scope: Scope) -> bool:
        return isinstance(base, ast.Name) and scope.holds_own_container(base.id)

    def _name(self, node: ast.Name, scope: Scope) -> Iterator[str]:
        name, found = node.id, scope.find(node.id)
        above = self.file.parents.get(node)
        if isinstance(node.ctx, ast.Store):
            if found and name in found.imports:
                yield f"`{name}` is imported, and a second meaning is not permitted; choose another name"
            if name in PYTHON_OWN - language.BUILTINS and not scope.is_function:
                yield f"`{name}` is a name of Python's own; choose another at module level"
            if scope is self.file.module and any_tensor(self.tensors.names.get((scope, name), False)):
                yield f"`{name}` keeps a tensor between calls; allocate inside the function"
        elif not found or (not found.is_function and name in PYTHON_OWN - set(found.imports)):
            if name in PYTHON_OWN - language.BUILTINS:
                instead = language.INSTEAD_OF_NAMES.get(name, "the permitted names are in labs/LANGUAGE.md")
                yield f"`{name}` is not permitted; {instead}"
        elif name in found.imports:
            if len(found.imports[name]) > 1:
                yield f"`{name}` is imported twice, as different things; choose another name"
            if not (isinstance(above, ast.Attribute) and above.value is node):
                yield from self._module_or_name(self.file.dotted(node) or name, name, scope.kernel)
        elif name in self.file.wrapped and found is self.file.module and not scope.kernel:
            wraps = isinstance(above, ast.Call) and self.file.dotted(above.func) in language.JIT
            if not wraps:
                yield f"`{name}` in host code is not permitted; it became a kernel, so use that"

    def _function(self, node: ast.FunctionDef, scope: Scope) -> Iterator[str]:
        method = isinstance(scope.node, ast.ClassDef)
        if scope.kernel:
            yield f"{node.name}, a function in a kernel, is not permitted; write a second kernel for it"
        if node.name in PYTHON_OWN - language.BUILTINS and not scope.is_function and not method:
            yield f"`{node.name}` is a name of Python's own; choose another for the function"
        if node.name in scope.imports:
            yield f"`{node.name}` is imported, and a second meaning is not permitted; choose another name"
        for decorator in node.decorator_list:
            static = method and isinstance(decorator, ast.Name) and decorator.id == "staticmethod"
            kept = self.file.values(decorator)  # tuned = triton.autotune(...)
            tuned = bool(kept) and all(one and self.file.called(one) in language.TUNERS for one in kept)
            if self.file.called(decorator) not in self.decorators and not (static or tuned):
                words = f"`@{text(decorator)[1:]}"
                yield f"the decorator {words} is not permitted; triton.jit, autotune and heuristics are"
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            if not constant(self.file, default) or any_tensor(self.tensors.kind(default)):
                yield f"the default value {text(default)} lives on between calls; write a constant, or None"

    def _callee(self, node: ast.Call) -> Iterator[str]:
        """Whether a call of host code names what it calls: a function, a kernel with its grid, a method."""
        func, full = node.func, self.file.dotted(node.func)
        name = text(func).strip("`")
        values = self.file.values(func)
        if any(self.file.is_kernel(one) for one in self.file.functions_of(func)):
            yield f"`{name}(...)` calls a kernel without a grid; write `{name}[grid](...)`"
        elif full and (full in language.NEVER_CALLED or full.startswith("typing.")):
            yield f"`{name}(...)` is not permitted; the name is for annotations and isinstance only"
        elif isinstance(func, ast.Name) and values and not full:
            plain = (ast.FunctionDef, ast.Lambda, ast.IfExp, ast.ClassDef, ast.Subscript)
            known = (isinstance(one, plain) or self.file.functions_of(one) for one in values)
            if not self.file.method(func) and not all(known):
                yield f"`{name}(...)` calls a value; call functions by their own names, kernels with [grid]"
        for launch in [func, *values]:
            if isinstance(launch, ast.Subscript) and not self._has_grid(launch.value):
                yield f"`{name}(...)` calls an item of {text(launch.value)}; write kernel[grid](...)"
        if isinstance(func, ast.Call):
            if self.file.called(func) not in language.WRAPPERS:
                yield f"`{name}(...)` calls a value; call functions by their own names, kernels with [grid]"
        elif not isinstance(func, ast.Name | ast.Attribute | ast.Lambda | ast.Subscript):
            yield f"`{name}(...)` calls a value; call functions by their own names"

    def _has_grid(self, base: ast.AST) -> bool:
        """Whether what is left of `[...]` may be a kernel, and is no list or dict."""
        held = (*MUTABLE, ast.Tuple, ast.Attribute, ast.BinOp, ast.BoolOp)
        return all(
            self.file.dotted(one) or self.file.method(one) or not isinstance(one, held)
            for one in [base, *self.file.values(base)]
            if one
        )

    def _called_by_name(self, node: ast.Name | ast.Lambda) -> bool:
        """Whether a function of host code stands where it is called, named, returned or handed to Triton."""
        functions = [*self.file.functions_of(node)]
        tables = [one for one in self.file.values(node) if isinstance(one, ast.Dict)]
        functions += [
            one for table in tables for part in table.values for one in self.file.functions_of(part)
        ]
        if isinstance(node, ast.Name) and node.id in language.COMPUTING and not self.file.values(node):
            above = self.file.parents.get(node)
            return self.file.scopes[node].kernel or (isinstance(above, ast.Call) and above.func is node)
        if isinstance(getattr(node, "ctx", None), ast.Store) or all(map(self.file.is_kernel, functions)):
            return True
        child: ast.AST = node
        above = self.file.parents.get(node)
        while isinstance(above, ast.IfExp):
            child, above = above, self.file.parents.get(above)
        in_dict = isinstance(above, ast.Dict)
        while isinstance(above, ast.Dict | ast.keyword):
            child, above = above, self.file.parents.get(above)
        match above:
            case ast.Assign():
                return not tables
            case ast.Return() | ast.Lambda() | ast.FunctionDef():
                return not (tables or in_dict)
            case ast.Subscript():
                return above.slice is child
            case ast.Call(func) if func is not child:
                full = self.file.dotted(func) or ""
                if full.startswith("triton."):
                    return full != "triton.Config" or getattr(child, "arg", "") == "pre_hook"
                keyword = child.arg if isinstance(child, ast.keyword) else ""
                own = bool(self.file.functions_of(func)) and not (tables or in_dict)
                return own or (keyword in ("key", "grid") and not in_dict)
            case ast.Call():
                return True
        return False

    def _lazy(self, node: ast.Call | ast.GeneratorExp) -> bool:
        """Whether an expression gives its elements only once, and nothing around it takes them at once."""
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) and not self.file.values(node.func) else ""
            own = self.file.functions_of(node.func)
            if not (name in LAZY or self.file.dotted(node.func) == "itertools.product") and (
                self.generators.isdisjoint(own)
            ):
                return False
        above = self.file.parents.get(node)
        if isinstance(above, ast.Assign):
            return not all(isinstance(target, ast.Tuple | ast.List) for target in above.targets)
        if isinstance(above, ast.Call) and isinstance(above.func, ast.Name):
            return bool(self.file.values(above.func))  # a call of Python's own takes them at once
        return not isinstance(above, ast.For | ast.comprehension | ast.Starred)

    def _call(self, node: ast.Call, scope: Scope) -> Iterator[str]:
        """Arguments of the autotuner, of launches, and hooks."""
        full = self.file.dotted(node.func)
        given = [keyword.arg for keyword in node.keywords]
        if full in language.JIT and (node.args or "fn" in given) and not self._wraps_a_function(node):
            yield f"{text(node)} is not permitted; give {full} one function of this file by its name"
        if full in language.KEYWORDS:
            unpacked = [one.value for one in node.keywords if not one.arg]
            keys = [key for one in unpacked for key in (one.keys if isinstance(one, ast.Dict) else [None])]
            known = [str(key.value) if isinstance(key, ast.Constant) else None for key in keys]
            for name in [*filter(None, given), *known]:
                if name not in language.KEYWORDS[full]:
                    yield f"`{name or '**'}` is not permitted in {full}; {PAGE}"
            if full == "triton.Config":
                yield from self._strange_options(node)
            if len(node.args) > CONFIG_POSITIONS:
                yield f"so many arguments of {full} without their names are not permitted; name them"
        if isinstance(node.func, ast.Subscript) and not scope.kernel:
            for name in given:
                if name and name not in self.parameters | language.LAUNCH:
                    yield f"`{name}=` in a launch is not permitted; no kernel here has such a parameter"
        if not scope.kernel:
            for name in dict.fromkeys(self._constant_tensors(node)):
                yield f"{name} is a constant of the kernel; pass a tensor as an argument without tl.constexpr"
        for keyword in node.keywords:
            if keyword.arg == "pre_hook" and not self.hooks.is_harmless(keyword.value):
                yield "a pre_hook is permitted only where it sets a descriptor's block_shape and nothing else"

    def _strange_options(self, node: ast.Call) -> Iterator[str]:
        """Keys of a Config's dict that are no parameter of a kernel here, and no permitted launch option."""
        for one in [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "kwargs")]:
            for key in one.keys if isinstance(one, ast.Dict) else []:
                name = key.value if isinstance(key, ast.Constant) else None
                if isinstance(name, str) and name not in self.parameters | language.LAUNCH:
                    yield f"`{name}` in a Config is not permitted; no kernel here has such a parameter"

    def _constant_tensors(self, node: ast.Call) -> Iterator[str]:
        """Parameters with tl.constexpr that a launch gives a tensor: host code would compute with that."""
        named: dict[object, ast.expr] = {one.arg: one.value for one in node.keywords if one.arg}
        for option in node.keywords:
            if not option.arg and isinstance(option.value, ast.Dict):
                keys = zip(option.value.keys, option.value.values, strict=True)
                named |= {key.value: value for key, value in keys if isinstance(key, ast.Constant)}
        by_place = list(itertools.takewhile(lambda one: not isinstance(one, ast.Starred), node.args))
        for launch in [node.func, *self.file.values(node.func)]:
            if not isinstance(launch, ast.Subscript):
                continue
            kernels = [one for one in self.file.functions_of(launch.value) if one in self.constexprs]
            # A kernel that a function was given has no name here: then an argument's name says enough.
            constant = self.constexpr_anywhere
            if kernels:
                constant = set().union(*(self.constexprs[kernel] for kernel in kernels))
            given = [(name, value) for name, value in named.items() if name in constant]
            for kernel in kernels:
                places = [one.arg for one in [*kernel.args.posonlyargs, *kernel.args.args]]
                pairs = zip(places, by_place, strict=False)
                given += [(name, value) for name, value in pairs if name in self.constexprs[kernel]]
            yield from (str(name) for name, value in given if any_tensor(self.tensors.kind(value)))

    def _wraps_a_function(self, node: ast.Call) -> bool:
        match node.args:
            case [ast.Name() as name]:
                values, top = self.file.values(name), self.file.tree.body
                return bool(values) and all(isinstance(one, ast.FunctionDef) and one in top for one in values)
        return False
