"""Programs drawn from the lists of grader/screen/language.py, and a process that shows what they reach.

`Writer` writes a program. Run as `python programs.py PLANTED SEED COUNT`, this file adds the names in the
JSON text PLANTED to the lists, draws programs, evaluates those that the screen accepts under an audit hook,
and prints what they did that no lab file may do.
"""

from __future__ import annotations

import ast
import builtins
import collections
import contextlib
import io
import json
import linecache
import random
import signal
import sys
from pathlib import Path

from grader.screen.tensors import ARITHMETIC, READS

HEAD = """\
import torch
import triton
import triton.language as tl
import math
from typing import NamedTuple
class Tile(NamedTuple):
    BLOCK_M: int = 64
    BLOCK_N: int = 32
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x.view(-1)
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy.contiguous(), None
@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)
def generated():
    yield 1
"""
TAIL = """\
    kernel[(1,)](x, y, out, 1, BLOCK=4)
    return out
"""
PLAIN = (
    "list(generated())", "numbers", "table", "tile", "kernel", "grid", "CONFIGS", "kernel.configs", "'text'",
    "x.device", "x.dtype", "x.shape", "torch.float16", "torch.finfo(torch.float32)",
    "triton.Config({'BLOCK': 64})",
)  # fmt: skip
LANGUAGE = (
    "TENSOR",
    "LAUNCHER",
    "MACHINE",
    "PYTHON",
    "FIGURES",
    "CTX",
    "BUILTINS",
    "TORCH",
    "TRITON",
    "ERRORS",
)
SPECIAL = ("zip", "enumerate", "reversed", "pow", "range")  # used up, or without end for large numbers
OPERATORS = ("+", "-", "*", "//", "%", "/", "&", "|", "^")
COMPARISONS = ("<", "<=", "==", "!=", "is", "in", "not in")
EVENTS = ("os.", "subprocess.", "socket.", "ctypes.", "shutil.", "signal.", "pty.", "mmap.", "gc.", "sys._")


class Writer:
    """Writes one program; `table` maps the lists of language.py to their names."""

    def __init__(self, table: dict[str, list[str]], seed: int):
        self.chance, self.table, self.depth = random.Random(seed), table, 0

    def one(self, *ways):
        """The text of one of some alternatives: a text itself, or a function that writes it."""
        way = self.chance.choice(ways)
        return way if isinstance(way, str) else way()

    def below(self, simple, *more):
        """The same, of `simple` alone where the expression is deep already."""
        self.depth += 1
        text = self.one(*simple, *(more if self.depth < 4 else ()))
        self.depth -= 1
        return text

    def number(self) -> str:
        return self.below(
            ("0", "1", "-3", "64", "1.5", "n", "tile.BLOCK_M"),
            lambda: f"{self.tensor()}.{self.one('numel()', 'size(0)', 'stride(0)', 'dim()', 'ndim')}",
            lambda: f"({self.number()} {self.one(*OPERATORS)} {self.number()})",
            lambda: f"(-{self.number()} << 2)",
            lambda: f"({self.number()} if {self.number()} else {self.number()})",
            lambda: f"sum({self.number()} for i in numbers)",
            lambda: f"(w := {self.number()})",
            lambda: f"math.{self.one('sqrt', 'ceil', 'log2')}({self.number()})",
            lambda: f"triton.{self.one('cdiv', 'next_power_of_2')}({self.number()}, {self.number()})",
        )

    def tensor(self) -> str:
        return self.below(
            ("x", "y", "out"),
            lambda: f"torch.{self.one('empty', 'zeros')}({self.one('4', '(2, 3)')}, dtype=x.dtype)",
            lambda: f"torch.{self.one('empty_like', 'zeros_like')}({self.tensor()})",
            lambda: (
                f"{self.tensor()}.{self.one('T', 't()', 'view(-1)', 'contiguous()', 'zero_()', 'fill_(1)')}"
            ),
            lambda: f"({self.tensor()} if {self.number()} else {self.tensor()})",
            lambda: f"F.apply({self.tensor()}, {self.number()})",
            lambda: f"{self.tensor()}[1:]",
        )

    def plain(self) -> str:
        """A value that is no tensor and no number."""
        builtin = [one for one in self.table["BUILTINS"] if one not in SPECIAL]
        # Those that compute or read are refused where an argument may hold a tensor.
        reading = [one for one in builtin if one in ARITHMETIC | READS]
        free = [one for one in builtin if one not in reading]
        called = [one for one in self.table["TRITON"] if one != "jit"]  # which takes a function's name alone
        return self.below(
            PLAIN,
            lambda: f"{self.one(*PLAIN)}.{self.one(*self._attributes())}",
            lambda: f"{self.one(*PLAIN)}.{self.one(*self._attributes())}({self.arguments()})",
            lambda: f"x.dtype.{self.one(*self._attributes())}.{self.one(*self._attributes())}",
            "list(range(3))",
            "pow(n, 2)",
            lambda: f"tile.{self.one(*self.table['FIGURES'])}",
            lambda: f"{self.tensor()}.{self._of_a_tensor()}",
            lambda: f"{self.one(*free)}({self.arguments()})",
            lambda: f"{self.one(*reading)}({self.number()})",
            lambda: f"{self.one(*builtin)}('text')",
            lambda: f"{self.one(*builtin)}({self.one(*PLAIN)}, {self.number()})",
            lambda: f"list({self.one('zip', 'enumerate', 'reversed')}({self.one(*PLAIN)}))",
            lambda: f"torch.{self.one(*self.table['TORCH'])}",
            lambda: f"torch.{self.one('device', 'Size', 'finfo', 'iinfo', 'is_tensor')}({self.arguments()})",
            lambda: f"triton.{self.one(*called)}({self.arguments()})",
            lambda: f"[{self.number()}, *numbers]",
            lambda: f"{{'a': {self.value()}, **table}}",
            lambda: f"({self.value()}, {self.value()})",
            lambda: f"[{self.value()} for i in numbers if {self.number()}]",
            lambda: f"{{i: {self.value()} for i in numbers}}",
            lambda: f"({self.plain()} {self.one(*COMPARISONS)} {self.plain()})",
            lambda: f"({self.plain()} and not {self.plain()})",
            lambda: "f'{x.shape} {n:>4}'",
            lambda: f"sorted(numbers, key=lambda v: {self.number()})",
            lambda: f"{self.one(*PLAIN)}[{self.one('0', '1:', repr('a'))}]",
            lambda: f"helper({self.tensor()}, {self.number()})",
        )

    def _of_a_tensor(self) -> str:
        found = self.one(*self.table["TENSOR"])
        return "ndim" if found in ("T", "mT") else found  # those are tensors, which may not be compared

    def _attributes(self) -> list[str]:
        lists = ("LAUNCHER", "MACHINE", "PYTHON", "TENSOR", "CTX")
        drawn = {name for kind in lists for name in self.table[kind]}
        return sorted(
            drawn - {"saved_tensors", "apply", "needs_input_grad", "save_for_backward"} - self._context()
        )

    def _context(self) -> set[str]:
        return {"mark_non_differentiable", "set_materialize_grads"}

    def value(self) -> str:
        return self.one(self.number, self.tensor, self.plain)

    def arguments(self) -> str:
        return ", ".join(self.one(self.number, self.plain) for _ in range(self.chance.randrange(3)))

    def statement(self, indent: str) -> str:
        inner = indent + "    "

        def block() -> str:
            return "".join(self.statement(inner) for _ in range(1 + self.chance.randrange(2)))

        ways = [
            lambda: f"a = {self.plain()}",
            lambda: f"b = {self.tensor()}",
            lambda: f"a, b = {self.plain()}, {self.tensor()}",
            lambda: f"c: int = {self.number()}",
            lambda: f"total += {self.number()}",
            self.plain,
            lambda: f"found.append({self.number()})",
            lambda: f"found[0] = {self.number()}",
            lambda: f"assert {self.plain()}, f'text {{x.shape}}'",
            lambda: f"if n < 0:\n{inner}raise {self.one(*self.table['ERRORS'])}('text')",
            lambda: f"launch = kernel[lambda meta: (triton.cdiv(n, meta['BLOCK']), {self.number()})]",
            lambda: f"def inner(t, m: int = 1):\n{inner}return {self.number()}",
            lambda: f"with torch.no_grad():\n{inner}b = {self.tensor()}",
        ]
        if len(indent) < 12:
            ways += [
                lambda: f"if {self.plain()}:\n{block()}{indent}else:\n{inner}pass",
                lambda: (
                    f"for i in {self.one('numbers', 'range(2)', 'zip(numbers, numbers)')}:\n"
                    f"{block()}{inner}break"
                ),
                lambda: f"while n < 0:\n{block()}{inner}continue",
            ]
        return f"{indent}{self.one(*ways)}\n"

    def program(self) -> str:
        """A whole file, of which `elementwise_add` is the graded function."""
        config = f"CONFIGS = [triton.Config({{'BLOCK': {self.one('64', '128')}}}, num_warps=4)]\n"
        text = HEAD + config
        for head, end in (("helper(t, n)", "    return n\n"), ("elementwise_add(x, y, *, out=None)", TAIL)):
            text += f"def {head}:\n"
            if "x" not in head:
                text += "    x, y, out = torch.zeros(4), torch.zeros(4), torch.zeros(4)\n"
            text += "    numbers, table, tile, n, total, grid = [1, 2], {'a': 1}, Tile(), 3, 0, (1,)\n"
            text += "    found = [0]\n"
            text += "".join(self.statement("    ") for _ in range(3)) + end
        return text


def main(table: str, seed: int, count: int) -> None:
    """Print one line of JSON: programs drawn, refused, evaluated to their end, and the escapes found."""
    import torch

    from grader.course import catalog
    from grader.course.submission import Submission
    from grader.screen import language, policy

    genuine = {kind: set(getattr(language, kind)) for kind in (*LANGUAGE, "HOST", "KERNEL", "MUTATORS")}
    for kind, planted in json.loads(table).items():
        for one in (kind, "HOST") if kind in ("TENSOR", "LAUNCHER", "MACHINE", "PYTHON") else (kind,):
            setattr(language, one, getattr(language, one) | frozenset(planted))
    lists = {kind: sorted(getattr(language, kind)) for kind in LANGUAGE}
    lab = catalog.find()[0].lab
    audit = Audit()
    signal.signal(signal.SIGALRM, _late)
    done = {"drawn": count, "refused": [], "ended": 0}
    for number in range(count):
        source = Writer(lists, seed + number).program()
        file = Path(lab.exercises[0].file)
        outcome = policy.screen(Submission(file, source.encode()), lab, lab.exercises[0])
        if outcome is not None:
            done["refused"].append((outcome.where, source))
            continue
        for name in outside(source, genuine):
            audit.found.setdefault(name, source)
        space = {"__name__": "program"}
        linecache.cache[PROGRAM] = (len(source), None, source.splitlines(keepends=True), PROGRAM)
        with audit.watching(source):
            exec(compile(source, PROGRAM, "exec"), space)  # noqa: S102 - what this file is for
            one = torch.ones(4)
            space["elementwise_add"](one, one, out=torch.empty(4))
            done["ended"] += 1
    sys.__stdout__.write(
        json.dumps(done | {"escapes": audit.found, "errors": audit.errors.most_common(9)}) + "\n"
    )


def _late(*_) -> None:
    raise TimeoutError("the program does not end")


def outside(source: str, genuine: dict[str, set[str]]):
    """Attributes and names of Python's own that a program uses and the genuine lists do not hold."""
    known = genuine["HOST"] | genuine["CTX"] | genuine["MUTATORS"] | genuine["FIGURES"] | genuine["KERNEL"]
    known |= {"apply", "n", "BLOCK_M", "BLOCK_N"}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr not in known:
            root = node.value
            while isinstance(root, ast.Attribute):
                root = root.value
            if not (isinstance(root, ast.Name) and root.id in ("torch", "triton", "tl", "math")):
                yield f"attribute {node.attr}"
        if isinstance(node, ast.Name) and hasattr(builtins, node.id) and node.id not in genuine["BUILTINS"]:
            yield f"name {node.id}"


PROGRAM = "program.py"


class Audit:
    """An audit hook for the time in which a program runs; `found` maps what it did to its text."""

    def __init__(self):
        self.found: dict[str, str] = {}
        self.source, self.errors = "", collections.Counter()
        sys.addaudithook(self._seen)

    @contextlib.contextmanager
    def watching(self, source: str):
        """Watch what runs here; errors of the program are its own."""
        kept, sys.stdout, sys.stderr = (sys.stdout, sys.stderr), io.StringIO(), io.StringIO()
        self.source = source
        signal.setitimer(signal.ITIMER_REAL, 2)  # seconds
        try:
            yield
        except Exception as error:  # most programs fail somewhere
            self.errors[f"{type(error).__name__} {error}"[:90]] += 1
        finally:
            self.source = ""
            signal.setitimer(signal.ITIMER_REAL, 0)
            sys.stdout, sys.stderr = kept

    def _seen(self, event: str, arguments: tuple) -> None:
        if not self.source:
            return
        source, self.source = self.source, ""  # what the hook does itself does not count
        try:
            caller = sys._getframe(1).f_code.co_filename
            if self._is_escape(event, arguments, caller):
                self.found.setdefault(f"{event} {str(arguments)[:60]}", source)
        finally:
            self.source = source

    def _is_escape(self, event: str, arguments: tuple, caller: str) -> bool:
        if event in ("compile", "exec"):
            return caller == PROGRAM  # Triton's interpreter and named tuples compile by themselves
        if event == "open":
            path, mode = str(arguments[0]), arguments[1] or "r"
            own = path.startswith((sys.prefix, sys.base_prefix)) or path == PROGRAM
            return mode not in ("r", "rb") or not own
        # The import system lists folders, and PyTorch asks for frames while it warns.
        return event.startswith(EVENTS) and (
            caller == PROGRAM or event not in ("os.listdir", "sys._getframe")
        )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
