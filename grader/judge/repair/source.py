"""The source of a file with its functions: spans of nodes, what a function can see, and what it calls."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from grader.judge.repair.launched import Given, given, kernel_of, pairs

# Functions and methods of PyTorch that make a tensor.
ALLOCATING = ("empty", "zeros", "full", "empty_like", "zeros_like", "full_like", "new_empty", "new_zeros")
CHOOSING = {"min", "max", "next_power_of_2", "clamp", "Config"}

STORING = ("store", "atomic_add", "atomic_max", "atomic_min")

Part: TypeAlias = tuple[tuple[int, int], str]  # where in the file, in bytes from and to, and the new text


@dataclass(frozen=True)
class Function:
    """A function of the file: its name, its node, and whether it is a Triton kernel.

    `constants` are the whole numbers of the module that it reads; `given` says of parameters of a kernel what
    its launches hand over.
    """

    name: str
    node: ast.FunctionDef
    kernel: bool
    constants: tuple[str, ...] = ()
    given: Mapping[str, Given] = field(default_factory=dict, hash=False)

    @property
    def parameters(self) -> list[str]:
        """The names of its parameters, in order."""
        given = self.node.args
        return [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]

    @cached_property
    def constexprs(self) -> frozenset[str]:
        """The names of its parameters that are tl.constexpr."""
        given = self.node.args
        every = (*given.posonlyargs, *given.args, *given.kwonlyargs)
        return frozenset(
            one.arg for one in every if one.annotation and {"constexpr"} & _words_of(one.annotation)
        )

    @cached_property
    def tuning(self) -> frozenset[ast.AST]:
        """The nodes of host code that only choose block sizes, warps and stages.

        Another choice often hides a mistake of a kernel, and so is no cause. A condition is no such choice.
        """
        if self.kernel:
            return frozenset()
        chosen: list[ast.AST] = []
        for node in ast.walk(self.node):
            if isinstance(node, ast.Call):
                chosen += [one.value for one in node.keywords if _tunes(one)]
                chosen += [node] if called(node) in CHOOSING and not _counts_blocks(node) else []
        names = {one.id for node in chosen for one in names_in(node)}
        for node in ast.walk(self.node):
            if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Compare | ast.BoolOp):
                targets = {one.id for target in node.targets for one in names_in(target)}
                if targets and targets <= names - set(self.parameters):
                    chosen.append(node)
        # What a width that is a power of 2 is made of may be wrong by one, and leaves elements out.
        exponents = {
            inner
            for node in chosen
            for power in ast.walk(node)
            if isinstance(power, ast.BinOp) and isinstance(power.op, ast.LShift | ast.Pow)
            for inner in ast.walk(power.right)
        }
        return frozenset(inner for node in chosen for inner in ast.walk(node)) - exponents

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """The nodes of its body in which a mistake is looked for."""
        return [one for part in self.node.body for one in ast.walk(part) if one not in self.tuning]

    @cached_property
    def branches(self) -> list[ast.AST]:
        """What runs under a condition."""
        bodies = list[ast.AST]()
        for node in self.nodes:
            if isinstance(node, ast.If):
                bodies += [*node.body, *node.orelse]
            elif isinstance(node, ast.IfExp):
                bodies += [node.body, node.orelse]
        return bodies

    @cached_property
    def stored(self) -> list[str]:
        """The names that its body binds, in the order of their first binding."""
        names = (node.id for node in ast.walk(self.node) if isinstance(node, ast.Name) and not _is_read(node))
        return list(dict.fromkeys(names))

    @cached_property
    def of_its_program(self) -> frozenset[str]:
        """The names that its body binds to what is made of the number of the program."""
        found: set[str] = set()
        bound = [node for node in ast.walk(self.node) if isinstance(node, ast.Assign | ast.AugAssign)]
        while True:
            more = {
                one.id
                for node in bound
                if "program_id" in _names_called(node.value)
                or found & {one.id for one in names_in(node.value)}
                for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
                for one in names_in(target)
            } - found
            if not more:
                return frozenset(found)
            found |= more

    @cached_property
    def unused(self) -> list[str]:
        """The names of its parameters, and those that its body binds, that the body does not read."""
        return [name for name in dict.fromkeys((*self.parameters, *self.stored)) if name not in self.read]

    @cached_property
    def read(self) -> frozenset[str]:
        """The names that its body reads."""
        body = (node for statement in self.node.body for node in ast.walk(statement))
        return frozenset(node.id for node in body if isinstance(node, ast.Name) and _is_read(node))


class Source:
    """A Python file with the places of its nodes; SyntaxError if it is not Python."""

    def __init__(self, text: str):
        self.text = text
        self.tree = ast.parse(text)
        # ast counts columns in bytes of UTF-8.
        self._starts = [0]
        for line in text.encode().split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._bytes = text.encode()

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return where a node begins and ends, in bytes."""
        begin = self._starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return begin, end

    def text_of(self, node: ast.AST) -> str:
        """Return the text of a node."""
        return self.between(*self.span(node))

    def between(self, begin: int, end: int) -> str:
        """Return the text of a span."""
        return self._bytes[begin:end].decode()

    def with_replaced(self, parts: Iterable[Part], within: tuple[int, int] | None = None) -> str:
        """Return the text, or what is `within` a span of it, with some spans replaced.

        ValueError if they overlap.
        """
        first, last = within or (0, len(self._bytes))
        after = b""
        for (begin, end), text in sorted(parts, reverse=True):
            if end > last:
                raise ValueError("two edits of the same place")
            after, last = text.encode() + self._bytes[end:last] + after, begin
        return (self._bytes[first:last] + after).decode()

    @cached_property
    def functions(self) -> dict[str, Function]:
        """The functions of the file, and the methods of its classes as `Class.method`."""
        found: dict[str, Function] = {}
        plain = {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)}
        handed = given(plain, [name for name, node in plain.items() if _is_kernel(node)])
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef):
                names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and _is_read(one)}
                read = tuple(name for name in self.whole_numbers if name in names)
                own = handed.get(node.name, {})
                found[node.name] = Function(node.name, node, _is_kernel(node), read, own)
            elif isinstance(node, ast.ClassDef):
                for method in node.body:
                    if isinstance(method, ast.FunctionDef):
                        name = f"{node.name}.{method.name}"
                        found[name] = Function(name, method, kernel=False)
        return found

    @cached_property
    def given(self) -> frozenset[str]:
        """The names that the file imports, and those of its kernels: they are no names of Triton."""
        imported = (one for one in self.tree.body if isinstance(one, ast.ImportFrom))
        names = {alias.asname or alias.name for one in imported for alias in one.names}
        return frozenset(names | {name for name, one in self.functions.items() if one.kernel})

    @cached_property
    def never_used(self) -> list[str]:
        """The kernels that the file neither launches nor calls: their names stand nowhere else."""
        names = [node.id for node in names_in(self.tree)]
        return [name for name, one in self.functions.items() if one.kernel and name not in names]

    @cached_property
    def of_triton(self) -> frozenset[str]:
        """The names that the file imports from Triton."""
        imported = (one for one in self.tree.body if isinstance(one, ast.ImportFrom))
        of_triton = (one for one in imported if (one.module or "").partition(".")[0] == "triton")
        return frozenset(alias.asname or alias.name for one in of_triton for alias in one.names)

    @cached_property
    def tuned(self) -> frozenset[str]:
        """The constants of autotuned kernels that a config may set: they are keys of a dict of the file."""
        keys: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Dict):
                keys |= {
                    one.value
                    for one in node.keys
                    if isinstance(one, ast.Constant) and isinstance(one.value, str)
                }
            elif isinstance(node, ast.Call) and called(node) == "dict":
                keys |= {one.arg for one in node.keywords if one.arg}
        kernels = (one for one in self.functions.values() if one.kernel)
        return frozenset(
            name
            for kernel in kernels
            if any({"autotune"} & _words_of(one) for one in kernel.node.decorator_list)
            for name in kernel.constexprs & keys
        )

    @cached_property
    def numbers(self) -> list[str]:
        """The names of the module that stand for a number with a point, also as a tl.constexpr."""
        found = []
        for node in self.tree.body:
            match node:
                case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(
                    ast.Name(name), _, ast.expr() as value
                ):
                    inner = value.args[0] if isinstance(value, ast.Call) and len(value.args) == 1 else value
                    if isinstance(inner, ast.Constant) and isinstance(inner.value, float):
                        found.append(name)
        return found

    @cached_property
    def whole_numbers(self) -> list[str]:
        """The names of the module that stand for a whole number, also as a tl.constexpr: sizes of tiles."""
        found = []
        for node in self.tree.body:
            match node:
                case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(
                    ast.Name(name), _, ast.expr() as value
                ):
                    bound = [(name, value)]
                case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)):
                    bound = [
                        (target.id, value)
                        for target, value in zip(targets, values, strict=False)
                        if isinstance(target, ast.Name)
                    ]
                case _:
                    continue
            for name, value in bound:
                inner = value.args[0] if isinstance(value, ast.Call) and len(value.args) == 1 else value
                if isinstance(inner, ast.Constant) and type(inner.value) is int:
                    found.append(name)
        return found

    @cached_property
    def handed_on(self) -> frozenset[tuple[int, int]]:
        """The spans of arguments that have the name of the parameter for which they are given."""
        found: set[tuple[int, int]] = set()
        for around in self.functions.values():
            for node in ast.walk(around.node):
                if not isinstance(node, ast.Call):
                    continue
                name = kernel_of(around.node, node, self.functions)
                handed = pairs(self.functions[name].node, node) if name else []
                found |= {
                    self.span(one) for name, one in handed if isinstance(one, ast.Name) and one.id == name
                }
        return frozenset(found)

    def kernels_with(self, parts: Iterable[Part]) -> tuple[str, ...]:
        """Return the kernels that do something else if spans are replaced; () if anything else may."""
        changed: set[str] = set()
        for (begin, end), _ in parts:
            inside = [
                name
                for name, (first, last) in self._spans_of_kernels.items()
                if first < begin and end <= last
            ]
            if not inside:
                return ()
            changed |= {*inside}
        return tuple(name for name, reached in self._reached_by_kernels.items() if reached & changed)

    @cached_property
    def stores_in_loops(self) -> bool:
        """Whether a kernel that asks how many programs there are stores something in a loop."""
        kernels = [one.node for one in self.functions.values() if one.kernel]
        sharing = [one for one in kernels if "num_programs" in _names_called(one)]
        loops = [node for one in sharing for node in ast.walk(one) if isinstance(node, ast.For | ast.While)]
        storing = {*STORING, *(one.name for one in kernels)}
        return any(storing & _names_called(loop) for loop in loops)

    def launches_before(self, parts: Iterable[Part], lines: Sequence[int]) -> int:
        """Return how many of the first launches, in these lines, run before code of the host is replaced."""
        begin = min(first for (first, _), _ in parts)
        for one in self.functions.values():
            first, last = self.span(one.node)
            if not one.kernel and first < begin < last:
                # A launch may take several lines, and be changed in the last of them.
                around = [self.span(part) for part in one.node.body]
                begin = max((start for start, end in around if start <= begin <= end), default=begin)
                at = self._bytes[:begin].count(b"\n") + 1
                inside = [one.node.lineno < line < at for line in lines]
                return inside.index(False) if False in inside else len(inside)
        return 0

    @cached_property
    def _spans_of_kernels(self) -> dict[str, tuple[int, int]]:
        return {name: self.span(one.node) for name, one in self.functions.items() if one.kernel}

    @cached_property
    def _reached_by_kernels(self) -> dict[str, set[str]]:
        return {name: {one.name for one in self.reached_from(name)} for name in self._spans_of_kernels}

    def reached_from(self, name: str) -> list[Function]:
        """Return the functions that a function of the file may run, itself first; [] if it is not there.

        A name of the file that a function mentions is taken to be called, and of a class each method.
        """
        order, seen = [name], {name}
        for one in order:
            function = self.functions.get(one)
            if function is None:
                continue
            mentioned = {node.id for node in ast.walk(function.node) if isinstance(node, ast.Name)}
            mentioned |= self._aliases(mentioned)
            for other in self.functions:
                first = other.partition(".")[0]
                if other not in seen and first in mentioned:
                    seen.add(other)
                    order.append(other)
        found = [self.functions[one] for one in order if one in self.functions]
        called_by_host = {
            called(node)
            for one in found
            if not one.kernel
            for statement in one.node.body
            for node in ast.walk(statement)
            if isinstance(node, ast.Call)
        }
        return [
            one
            for one in found
            if one.kernel or one.name in {name, *called_by_host} or self._works_on_tensors(one)
        ]

    def _works_on_tensors(self, function: Function) -> bool:
        """Return whether host code launches a kernel, calls what may, or is a method for autograd."""
        if "." in function.name:
            return True
        names = {node.id for node in names_in(function.node)}
        own = {name for name, one in self.functions.items() if one.kernel or "." in name}
        return any(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)
            for node in ast.walk(function.node)
        ) or bool(names & own)

    def _aliases(self, names: set[str]) -> set[str]:
        """Return the names that module-level assignments to `names` mention."""
        found: set[str] = set()
        for node in self.tree.body:
            if isinstance(node, ast.Assign):
                targets = {one.id for target in node.targets for one in names_in(target)}
                if targets & names:
                    found |= {one.id for one in names_in(node.value)}
        return found


def _tunes(keyword: ast.keyword) -> bool:
    """Return whether a keyword argument is a block size, or an option of a launch."""
    name = keyword.arg or ""
    decides = isinstance(keyword.value, ast.Compare | ast.BoolOp)
    return (name.isupper() and not decides) or name.startswith("num_")


def _counts_blocks(node: ast.Call) -> bool:
    """Return whether a call bounds a quotient from below: a number of programs or tiles, and no block size.

    The smaller of two numbers of programs is a choice: with more of them each has less to do, and what one
    iteration leaves to the next does not show.
    """
    bounds = called(node) == "max"
    divides = (
        isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div | ast.FloorDiv) for one in ast.walk(node)
    )
    return bounds and (any(divides) or any(called(one) == "cdiv" for one in ast.walk(node)))


def names_in(node: ast.AST) -> Iterator[ast.Name]:
    """Yield the names in a node."""
    return (one for one in ast.walk(node) if isinstance(one, ast.Name))


def is_start(value: ast.AST) -> bool:
    """Return whether a value is a number, or a block of one, as that with which a sum begins."""
    return isinstance(value, ast.Constant) or called(value) in ("zeros", "zeros_like", "full")


def stored(source: Source, node: ast.AST) -> ast.expr | None:
    """Return what a call of a store stores; None for any other node.

    A function of the file, or one that it is given, has it last: `store(row_ptr, cols, n_cols, value)`.
    """
    match node:
        case ast.Call(args=[_, value, *others]) if called(node) in ("store", "atomic_add"):
            own = isinstance(node.func, ast.Name) and node.func.id not in source.of_triton
            return others[-1] if own and others else value
    return None


def called(node: ast.AST) -> str:
    """Return the last part of the name that a call calls, such as `load`; "" for any other node."""
    if not isinstance(node, ast.Call):
        return ""
    match node.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def _is_read(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _is_kernel(node: ast.FunctionDef) -> bool:
    return any({"jit"} & _words_of(one) for one in node.decorator_list)


def _words_of(node: ast.AST) -> set[str]:
    """Return the names and attributes in an expression."""
    found = {one.id for one in names_in(node)}
    return found | {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}


def _names_called(node: ast.AST) -> set[str]:
    return {called(one) for one in ast.walk(node) if isinstance(one, ast.Call)}


def has_branches(text: str) -> bool:
    """Return whether a kernel of a file has a condition, of which one way may not be compiled."""
    kernels = [one.node for one in Source(text).functions.values() if one.kernel]
    return any(isinstance(node, ast.If | ast.IfExp) for one in kernels for node in ast.walk(one))
