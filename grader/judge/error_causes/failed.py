"""A failed call or file as the rules see it: its type, its message, and the syntax tree of its line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from grader.course.spec import Verdict
from grader.judge.repair.launched import kernel_of
from grader.results.findings import Frame
from grader.results.outcome import Outcome

_TYPED = re.compile(r"([A-Za-z_]\w*)(?:: (.*))?", re.DOTALL)
_CARET = re.compile(r"^ *\^ *$", re.MULTILINE)
_MOST_WRAPPED = 8
_QUOTED = 12  # lines of a kernel that Triton quotes, at most


class Source:
    """The text of a file with its syntax tree, which is empty where the file is no Python."""

    def __init__(self, text: str):
        self.lines = text.splitlines()
        try:
            self.tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.tree = ast.Module([], [])
        self.functions = [one for one in ast.walk(self.tree) if isinstance(one, ast.FunctionDef)]
        self.kernels = {one.name: one for one in self.functions if any(map(_is_jit, one.decorator_list))}

    def statement(self, line: int) -> ast.AST | None:
        """Return the smallest statement that has a line, None if no statement has."""
        found = [one for one in ast.walk(self.tree) if isinstance(one, ast.stmt) and _spans(one, line)]
        return min(found, key=_height, default=None)

    def function(self, line: int) -> ast.FunctionDef | None:
        """Return the innermost function that has a line."""
        return min((one for one in self.functions if _spans(one, line)), key=_height, default=None)

    def defined(self, name: str) -> ast.FunctionDef | None:
        """Return the function of that name."""
        return next((one for one in self.functions if one.name == name), None)

    def line_of(self, quoted: list[str]) -> int:
        """Return the number of the last of some lines that are quoted in a row; 0 if they are not found."""
        wanted = [line.strip() for line in quoted]
        for end in range(len(wanted), len(self.lines) + 1):
            if [line.strip() for line in self.lines[end - len(wanted) : end]] == wanted:
                return end
        return 0


@dataclass(frozen=True)
class Failed:
    """An error of a student's file. `line` is the innermost one that is known, 0 if none is."""

    verdict: Verdict
    kind: str  # the type of the innermost exception, "" where there was none
    text: str
    source: Source
    line: int
    frames: tuple[Frame, ...] = ()
    tier: str = ""
    native: bool = False
    given: Mapping[str, Source] = field(default_factory=dict)  # modules that the file imports, by name
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of blocks that the line names
    numbers: Mapping[str, int] = field(default_factory=dict)  # whole ones that the line names
    unwrapped: bool = False  # whether it was in another error, or below a kernel that is quoted

    @classmethod
    def of(
        cls,
        outcome: Outcome,
        text: str,
        tier: str = "",
        native: bool = False,
        given: Mapping[str, str] | None = None,
    ) -> Failed:
        """Read an outcome whose `where` is what the file's process, or the screen, has said."""
        source = Source("" if native else text)
        if native:
            source.lines = text.splitlines()
        frames, said = outcome.frames, outcome.where
        line = frames[0].line if frames and not frames[0].other_file else 0
        kind = ""
        if outcome.verdict is not Verdict.POLICY and (typed := _TYPED.fullmatch(said)):
            kind, said = typed[1], typed[2] or ""
        quoted, message = _split(said)
        found = source.line_of(quoted) if quoted else 0
        inner, message = _unwrapped(kind, message)
        others = {name: Source(one) for name, one in (given or {}).items()}
        unwrapped = bool(message) and (found > 0 or inner != kind)
        verdict, line = outcome.verdict, found or line
        return cls(
            verdict,
            inner,
            message,
            source,
            line,
            frames,
            tier,
            native,
            others,
            outcome.shapes,
            outcome.numbers,
            unwrapped,
        )

    @property
    def code(self) -> str:
        """The line of the error."""
        return self.source.lines[self.line - 1].strip() if 0 < self.line <= len(self.source.lines) else ""

    @cached_property
    def statement(self) -> ast.AST | None:
        """The statement of the error."""
        return self.source.statement(self.line)

    @cached_property
    def function(self) -> ast.FunctionDef | None:
        """The function of the error."""
        return self.source.function(self.line)

    @property
    def in_kernel(self) -> bool:
        """Whether the error is in a kernel, or in a function that kernels call."""
        return self.function is not None and self.function in self.source.kernels.values()

    def nodes(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        """Yield the nodes of some kinds in the statement of the error; of a block only its head."""
        stack: list[ast.AST] = [self.statement] if self.statement else []
        while stack:
            node = stack.pop()
            if isinstance(node, kinds):
                yield node
            children = list(ast.iter_child_nodes(node))
            if node is self.statement:
                children = [one for one in children if not isinstance(one, ast.stmt)]
            stack += children[::-1]

    def calls(self) -> list[ast.Call]:
        """The calls in the statement of the error."""
        return [one for one in self.nodes(ast.Call) if isinstance(one, ast.Call)]

    @property
    def own_functions(self) -> list[ast.FunctionDef]:
        """The functions of the file on the stack, the innermost first."""
        own = (frame.line for frame in self.frames if not frame.other_file)
        found = [one for line in (self.line, *own) if (one := self.source.function(line))]
        return list(dict.fromkeys(found))

    def launch(self) -> tuple[ast.FunctionDef, ast.Call] | None:
        """The kernel that a line of host code launches, with its call; the first such line of the stack."""
        for frame in self.frames:
            function = None if frame.other_file else self.source.function(frame.line)
            if function is None or function in self.source.kernels.values():
                continue
            statement = self.source.statement(frame.line)
            for call in ast.walk(statement) if statement else ():
                if isinstance(call, ast.Call) and (kernel := self.launched_by(call, function)):
                    return kernel, call
        return None

    def launched_by(self, call: ast.Call, function: ast.FunctionDef) -> ast.FunctionDef | None:
        """The kernel that a call in a function launches, also where `kernel[grid]` has a name of its own."""
        return self.source.kernels.get(kernel_of(function, call, self.source.kernels))


def _split(said: str) -> tuple[list[str], str]:
    """Split what Triton's compiler says: the lines up to the wrong one, which it quotes, and its message."""
    carets = list(_CARET.finditer(said))
    if not carets:
        return [], said
    quoted = said[: carets[-1].start()].splitlines()
    start = next((k for k in range(len(quoted) - 1, -1, -1) if re.fullmatch(r".*at \d+:\d+:", quoted[k])), -1)
    # Of a long first line only the end may be quoted.
    return quoted[start + 1 :][-_QUOTED:], said[carets[-1].end() :].strip()


def _unwrapped(kind: str, text: str) -> tuple[str, str]:
    """Take an error out of those that only have its repr as their text."""
    for _ in range(_MOST_WRAPPED):
        try:
            node = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            break
        match node:
            case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=value)]) if name[0].isupper():
                kind, text = name, str(value)
            case ast.Call(func=ast.Name(id=name), args=[]) if name.endswith("Error"):
                kind, text = name, ""
            case _:
                break
    return kind, text


def _is_jit(node: ast.AST) -> bool:
    return any(
        isinstance(one, (ast.Attribute, ast.Name))
        and (getattr(one, "attr", "") or getattr(one, "id", "")) == "jit"
        for one in ast.walk(node)
    )


def _spans(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _height(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno


def parameters(function: ast.FunctionDef) -> list[str]:
    """The names of a function's parameters, in their order."""
    every = function.args
    return [one.arg for one in (*every.posonlyargs, *every.args, *every.kwonlyargs)]


def constants(kernel: ast.FunctionDef) -> list[str]:
    """The parameters of a kernel that are annotated as tl.constexpr."""
    return [
        one.arg
        for one in (*kernel.args.args, *kernel.args.kwonlyargs)
        if one.annotation is not None and ast.unparse(one.annotation).endswith("constexpr")
    ]


def assigned(function: ast.AST | None, name: str) -> Iterator[ast.expr]:
    """Yield the values that a function gives a name; of a call that is unpacked the call."""
    for node in ast.walk(function) if function else ():
        match node:
            case ast.Assign(targets, value):
                for target in targets:
                    if isinstance(target, ast.Name) and target.id == name:
                        yield value
                    if isinstance(target, ast.Tuple) and isinstance(value, ast.Call | ast.Tuple):
                        values = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
                        for one, part in zip(target.elts, values, strict=False):
                            if isinstance(one, ast.Name) and one.id == name:
                                yield part


def is_new_axis(node: ast.AST) -> bool:
    """Return whether an index is `None`, which gives a block a new axis."""
    return isinstance(node, ast.Constant) and node.value is None


def short(node: ast.AST) -> str:
    """Return the code of a node in backticks, its middle left out where it is long."""
    code = ast.unparse(node)
    return f"`{code}`" if len(code) <= 48 else f"`{code[:30]} ... {code[-12:]}`"
