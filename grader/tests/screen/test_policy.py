"""The static screen: what each rule refuses, what it permits, and that no text whatever makes it raise."""

import ast
import dataclasses
import importlib
import random
import time
import types
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grader.course import catalog, specimens
from grader.course.parts import parts_of
from grader.course.spec import Lab, Verdict
from grader.course.submission import Submission
from grader.report import markdown
from grader.screen import language
from grader.screen.policy import DEEP, LONG, screen
from grader.site.tables import LABEL, rewrite

ENTRIES = {entry.number: entry for entry in catalog.find()}
LAB = ENTRIES[1].lab
ADD = LAB.exercises[0]
TREES = sorted(
    path
    for entry in ENTRIES.values()
    for folder in (entry.folder, catalog.ROOT / "solutions" / entry.folder.name)
    for path in [*folder.glob("[!_]*.py"), *folder.glob("variants/*.py")]
    if path.name != "lab.py" and path.name not in {given.name for given in entry.given}
)
HEAD = """\
from typing import Literal, NamedTuple, Optional
import torch
import triton
import triton.language as tl
@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, x + tl.load(y_ptr + offs, mask=offs < n), mask=offs < n)
"""
LAUNCH = "kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)"
LINE = HEAD.count("\n") + 1  # of what comes after


def verdict(body: str, lab=LAB, exercise=ADD, beside: Path | None = None):
    """What the screen says of a file; `beside` is the folder of the student's other files."""
    submission = Submission(Path(exercise.file), body.encode(errors="replace"))
    files = lab.imports.get(exercise.file, ()) if beside else ()
    parts = parts_of(submission, files, lambda path: Submission.read(beside / path.name))
    return screen(submission, lab, exercise, parts)


def around(*lines: str, after: str = "") -> str:
    """A file whose graded function holds `lines` ahead of its launch; they begin on line LINE + 1."""
    inside = "".join(f"    {part}\n" for line in lines for part in line.split("\n"))
    return f"{HEAD}def elementwise_add(x, y, *, out=None):\n{inside}    {LAUNCH}\n    return out\n{after}"


def above(lines: str) -> str:
    """A file with `lines` at module level from line LINE on, and a right function below them."""
    return f"{HEAD}{lines}\ndef elementwise_add(x, y, *, out=None):\n    {LAUNCH}\n    return out\n"


def refused(source: str, line: int, words: str, lab=LAB):
    outcome = verdict(source, lab)
    assert outcome is not None, "permitted"
    assert outcome.verdict is Verdict.POLICY
    assert outcome.where.startswith(f"line {line}: "), outcome.where
    assert words in outcome.where, outcome.where
    assert ";" in outcome.where or "only" in outcome.where, "says nothing about what is wanted instead"
    assert outcome.frames[0].line == line
    assert outcome.frames[0].code == " ".join(source.split("\n")[line - 1].split())
    return outcome


@pytest.mark.parametrize("path", TREES, ids=lambda path: "/".join(path.parts[-3:]))
def test_skeletons_and_solutions_pass_and_variants_get_what_their_first_line_says(path):
    entry = next(entry for entry in ENTRIES.values() if entry.folder.name in path.parts)
    text = path.read_text("utf-8")
    if path.parent.name == "variants":
        specimen = specimens.read(path)
        wanted = specimen.screened
        asked = [exercise for exercise in entry.lab.exercises if exercise.name in specimen.functions]
    else:
        wanted = ("PASS",)
        asked = [exercise for exercise in entry.lab.exercises if f"def {exercise.name}(" in text]
    assert asked
    for exercise in asked:
        beside = path.parent.parent if path.parent.name == "variants" else path.parent
        found = verdict(text, entry.lab, exercise, beside)
        assert (found.label if found else "PASS") in wanted


IN_THE_FUNCTION = {
    "torch operator": ("torch.add(x, y, out=out)", "`torch.add`"),
    "functional": ("torch.nn.functional.softmax(x, 0)", "`torch.nn.functional.softmax`"),
    "unbound method that a list has too": ("torch.Tensor.add(x, y)", "`.add`"),
    "unbound method": ("torch.Tensor.mm(x, y)", "`.mm`"),
    "stream": ("torch.cuda.Stream()", "`torch.cuda.Stream`"),
    "synchronize": ("torch.cuda.synchronize()", "`torch.cuda.synchronize`"),
    "graph": ("torch.cuda.CUDAGraph()", "`torch.cuda.CUDAGraph`"),
    "event": ("torch.cuda.Event()", "`torch.cuda.Event`"),
    "compile": ("torch.compile(x)", "`torch.compile`"),
    "ops": ("torch.ops.aten.add(x, y)", "`torch.ops.aten.add`"),
    "own timing": ("triton.testing.do_bench(x)", "`triton.testing.do_bench`"),
    "module as a value": ("t = torch", "the module `torch` itself"),
    "module in a list": ("[torch][0].view(x, y)", "the module `torch` itself"),
    "module by a choice": ("(torch.empty if 0 else torch).view(x, y)", "`torch` itself"),
    "module by a walrus": ("(t := torch).view(x, y)", "the module `torch` itself"),
    "module unpacked": ("(t,) = (torch,)", "the module `torch` itself"),
    "module in a comprehension": ("[t.view(x, y) for t in (torch,)]", "`torch` itself"),
    "module by a lambda": ("(lambda t: t.view(x, y))(torch)", "`torch` itself"),
    "submodule as a value": ("c = torch.cuda", "the module `torch.cuda` itself"),
    "local import": ("import os", "`import os`"),
    "getattr": ('getattr(x, "m" + "m")(y)', "`getattr`"),
    "setattr": ('setattr(x, "data", y)', "`setattr`"),
    "hasattr": ('hasattr(tl, "load")', "`hasattr`"),
    "exec": ('exec("import os")', "`exec`"),
    "eval": ('eval("x + y")', "`eval`"),
    "compile builtin": ('compile("x", "y", "eval")', "`compile`"),
    "open": ('open("f")', "`open`"),
    "globals": ('globals()["torch"]', "`globals`"),
    "vars": ("vars(torch)", "`vars`"),
    "import function": ('__import__("os")', "`__import__`"),
    "class walk": ("().__class__", "names with two underscores"),
    "class walk in a comprehension": ("[c for c in ().__class__.mro()]", "names with two underscores"),
    "frame": ("x.gi_frame", "`.gi_frame`"),
    "type": ("kind = type(x)", "`type`"),
    "type with three arguments": ('type("T", (), {})', "`type`"),
    "type under another name": ('t = type\nt("T", (), {})', "`type`"),
    "exception and its traceback": ("e = Exception", "`Exception`"),
    "floats read from a tensor": ("values = [float(one) for one in x]", "reads a tensor"),
    "tensor element by element": ("for one in x:\n    pass", "element by element"),
    "one number read": ("n = float(x[0])", "`float(x[0])` reads a tensor"),
    "fill with a tensor": ("out.fill_(x[0])", "copies a tensor"),
    "tensor made of numbers": ("z = torch.Tensor([1.0])", "for annotations and isinstance"),
    "call of a parameter": ("def call(f):\n    return f(x)", "calls a value"),
    "call of an item": ("d = {'a': 1}\nd['a'](x)", "calls an item"),
    "call of a result": ("kernel.best_config(1)(x)", "calls a value"),
    "items of a config that are called": ("d = kernel.configs[0].kwargs\nd['a'](x, y)", "calls an item"),
    "string annotation that calls": ("n: 'print(x)' = 1", "the annotation `print(x)`"),
    "string annotation of an item": ("n: 'int if x else str' = 1", "the annotation `int if x else str`"),
    "string annotation that is no code": ("n: 'an int' = 1", "the annotation `'an int'`"),
    "string annotation in a string": ("n: \"list['int']\" = 1", "the annotation"),
    "string in a generic annotation": ("n: list['print(x)'] = 1", "the annotation"),
    "string annotation of torch": ("n: 'torch.ops' = 1", "`torch.ops`"),
    "string annotation of a hidden name": ("n: 'torch.__name__' = 1", "names with two underscores"),
    "literal that is code": ("n: Literal['print(x)'] = 1", "the annotation"),
    "something else called literal": ("Literal = list\nn: Literal['word'] = 1", "the annotation"),
    "annotation by a parameter": ("def f(a, b: x): return a", "the annotation `x`"),
    "filter": ("n = list(filter(None, (1, 2)))", "`filter` is not permitted; write a comprehension"),
    "frozen set of a tensor": ("n = frozenset(x)", "reads a tensor"),
    "annotation that calls": ("n: print(x) = 1", "the annotation `print(x)`"),
    "class in a function": ("class F(torch.autograd.Function):\n    pass", "class F in a function"),
    "iterator that is kept": ("pairs = zip((1, 2), (3, 4))", "used up between calls"),
    "method sum": ("x.sum()", "`.sum`"),
    "method softmax": ("x.softmax(0)", "`.softmax`"),
    "method copy_": ("out.copy_(x)", "`.copy_`"),
    "method add_": ("out.add_(x)", "`.add_`"),
    "method max": ("x.max()", "`.max`"),
    "bound method kept": ("f = x.min", "`.min`"),
    "attribute by a pattern": ("match x:\n    case torch.Tensor(mm=f):\n        f(y)", "`match` is not"),
    "python function of a kernel": ("kernel.fn(x, y, out, 1, 2)", "`.fn`"),
    "kernel without a grid": ("kernel(x, y, out, 1, BLOCK=2)", "without a grid"),
    "tensor as a constant": ("kernel[(1,)](x, y, out, 1, BLOCK=x)", "BLOCK is a constant"),
    "tensor as a constant by position": ("kernel[(1,)](x, y, out, 1, x)", "BLOCK is a constant"),
    "tensor as a constant by a dict": ("kernel[(1,)](x, y, out, 1, **{'BLOCK': x})", "BLOCK is a constant"),
    "tensor as a constant in two steps": (
        "launch = kernel[(1,)]\nlaunch(x, y, out, 1, BLOCK=(4, x))",
        "BLOCK is a constant",
    ),
    "tensor as a constant of one of two": (
        "def prepare(k):\n    k[(1,)](x, y, out, 1, BLOCK=y)\nprepare(kernel)",
        "BLOCK is a constant",
    ),
    "unknown launch option": (
        'kernel[(1,)](x, y, out, 1, BLOCK=2, extern_libs={"a": "b"})',
        "`extern_libs=`",
    ),
    "matrix product": ("z = x @ y", "`x @ y`"),
    "matrix product of unknowns": ("z = (lambda a, b: a @ b)(x, y)", "`a @ b`"),
    "sum of tensors": ("z = x + y", "`x + y` computes with a tensor"),
    "tensor times a number": ("z = 2 * x", "`2 * x` computes with a tensor"),
    "in place": ("out += x", "`out += x` computes with a tensor"),
    "negative": ("z = -x", "`-x` computes with a tensor"),
    "comparison": ("z = x > y", "`x > y` computes with a tensor"),
    "new tensor": ("z = torch.zeros_like(x)\nz + 1", None),
    "view": ("z = x.view(-1)[1:] * 2", "computes with a tensor"),
    "reversed pair": ("a, b = y, x\na - b", None),
    "sum of tensors in lists of two lengths": (
        "for t in ([x, y] if x.numel() else [x]):\n    z = t + t",
        "`t + t` computes",
    ),
    "in a list": ("z = [x, y]\nz[0] + z[1]", None),
    "in a loop": ("for t in (x, y):\n    t * t", None),
    "sum of a list": ("sum([x, y])", "`sum([x, y])` computes with a tensor"),
    "absolute value": ("abs(x)", "`abs(x)` computes with a tensor"),
    "lambda": ("f = lambda a, b: a + b\nf(x, y)", "`a + b` computes"),
    "functions in a list": ("f = [lambda a: a + 1]\nf[0](x)", "as a value is not permitted"),
    "map": ("list(map(lambda a: a * a, [x, y]))", "`map` is not permitted; write a comprehension"),
    "closure": ("def inner():\n    return x + y\ninner()", None),
    "default value": ("def f(a=x): return a * 2\nf()", "the default value `x`"),
    "generator": ("def g():\n    yield x\nfor t in g():\n    t * 2", None),
    "mapped builtin": ("list(map(sum, [x]))", "`map`"),
    "sorted by a sum": ("sorted([x], key=lambda t: t + y)", "`t + y` computes"),
    "builtin in a list": ("f = [sum]\nf[0]([x, y])", "`sum` as a value"),
    "builtin under another name": ("add = sum\nadd([x, y])", "`sum` as a value"),
    "packed and unpacked": ("def f(*a, **k): return a[0] + k['b']\nf(*(x,), b=y)", "computes"),
    "returned function": ("def make():\n    return lambda a, b: a + b\nmake()(x, y)", "calls a value"),
    "handed-on function": ("def call(f, a, b): return f(a, b)\ncall(lambda a, b: a + b, x, y)", "calls"),
    "slice of out": ("out[:] = x", "storing to `out[:]`"),
    "attribute of out": ("out.data = x", "storing to `out.data`"),
    "function attribute": ("elementwise_add.kept = out", "storing to `elementwise_add.kept`"),
    "patched module": ("torch.empty_like = torch.empty", "changes a module"),
    "try": ("try:\n    pass\nexcept ValueError:\n    pass", "`try` is not permitted"),
    "with open": ("with torch.cuda.stream(x):\n    pass", "after `with`"),
    "del": ("del x", "`del` is not permitted"),
    "global": ("global N\nN = 1", "`global` is not permitted"),
    "class": ("class Lazy(torch.Tensor):\n    pass", "class Lazy"),
    "print is fine, input is not": ("input()", "`input`"),
}


@pytest.mark.parametrize(("code", "words"), IN_THE_FUNCTION.values(), ids=IN_THE_FUNCTION)
def test_line_of_the_function_is_refused(code, words):
    source = around(code)
    if words is None:
        outcome = verdict(source)
        assert outcome is not None, "permitted"
        assert "computes with a tensor" in outcome.where
        return
    tree = ast.parse(source)
    inside = [n for n in ast.walk(tree) if hasattr(n, "lineno") and n.lineno > LINE]
    assert inside
    outcome = verdict(source)
    assert outcome is not None, "permitted"
    refused(source, outcome.frames[0].line, words)
    assert LINE < outcome.frames[0].line <= LINE + 1 + code.count("\n")


AT_MODULE_LEVEL = {
    "alias": ("import os as tl2", "`import os`"),
    "numpy": ("import numpy as np", "`import numpy`"),
    "functional": ("import torch.nn.functional as F", "`import torch.nn.functional`"),
    "name of torch": ("from torch import mm as f", "`from torch import mm`"),
    "star": ("from torch import *", "`from torch import *`"),
    "relative": ("from . import lab", "`from . import lab`"),
    "module inside typing": ("from typing import sys", "`from typing import sys`"),
    "inline assembly": (
        "from triton.language import inline_asm_elementwise as asm",
        "`from triton.language import inline_asm_elementwise`",
    ),
    "inside of triton.language": (
        "from triton.language.core import load",
        "`from triton.language.core import load`",
    ),
    "own timing": ("from triton.testing import do_bench", "`from triton.testing import do_bench`"),
    "second meaning of an import": ("import torch as kernel2\nkernel2 = 5", "`kernel2` is imported"),
    "name of Python's own": ("if 0:\n    eval = 1", "`eval`"),
    "module as a default": ("def f(t=torch): return t", "the module `torch` itself"),
    "mutable default": ("def f(kept={}): return kept", "the default value `{}`"),
    "tensor as a default": ("def f(kept=torch.empty(1)): return kept", "the default value"),
    "decorator of one's own": ("def d(f): return f\n@d\ndef g(): return 1", "the decorator `@d`"),
    "tensor kept": ('KEPT = torch.empty(8, device="cpu")', "`KEPT` keeps a tensor"),
    "tensors kept": ("KEPT = [torch.empty(8) for _ in range(2)]", "`KEPT` keeps a tensor"),
    "cache": ("CACHE = {}\ndef f(key, out):\n    CACHE[key] = out", "storing to `CACHE[key]`"),
    "cache under another name": ("CACHE = {}\ndef f(key):\n    c = CACHE\n    c[key] = 1", "`c[key]`"),
    "cache by append": ("SEEN = []\ndef f(x):\n    SEEN.append(x)", "`SEEN.append`"),
    "cache by a bound method": ("SEEN = []\ndef f(x):\n    g = SEEN.append\n    g(x)", "`SEEN.append`"),
    "cache by setdefault": ("CACHE = {}\ndef f(k):\n    return CACHE.setdefault(k, 1)", "`CACHE.setdefault`"),
    "cache grown": ("SEEN = []\ndef f(x):\n    s = SEEN\n    s += [x]", "`s += [x]`"),
    "counter": ("TURN = zip([1, 2])", "used up between calls"),
    "counter by a generator": ("def count():\n    yield 1\nTURN = count()", "used up between calls"),
    "class of one's own": ("class Box:\n    pass", "class Box"),
    "dataclass that is not permitted here": (
        "from dataclasses import dataclass",
        "`from dataclasses import dataclass`",
    ),
    "state in an autograd class": (
        "class F(torch.autograd.Function):\n    kept = []",
        "`kept = []` in class F",
    ),
    "state on an autograd class": (
        "class F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        F.kept = x",
        "storing to `F.kept`",
    ),
    "forward called by hand": (
        "class F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): return x\n"
        "def f(x): return F.forward(f, x)",
        "`F.forward`",
    ),
    "tensors added in forward": (
        "class F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, a, b): return a + b\n"
        "def g(x): return F.apply(torch.empty_like(x), x)",
        "`a + b` computes with a tensor",
    ),
    "saved tensors multiplied": (
        "class F(torch.autograd.Function):\n    @staticmethod\n    def backward(ctx, dy):\n"
        "        (y,) = ctx.saved_tensors\n        return y * 2",
        "`y * 2` computes with a tensor",
    ),
    "helper that adds": (
        "def add(a, b): return a + b\ndef f(x): return add(torch.zeros_like(x), 1)",
        "`a + b` computes with a tensor",
    ),
    "kernel that its host calls": (
        "def plain(a, b): return a + b\nk = triton.jit(plain)\ndef f(): return plain",
        "`plain` in host code",
    ),
    "assembly in a kernel": (
        "@triton.jit\ndef k(p): tl.inline_asm_elementwise('', '', [], tl.int32, True, 1)",
        "`tl.inline_asm_elementwise`",
    ),
    "assembly through a submodule": (
        "@triton.jit\ndef k(p): tl.core.inline_asm_elementwise('', '', [], tl.int32, True, 1)",
        "`tl.core.inline_asm_elementwise`",
    ),
    "own clock for the autotuner": (
        "@triton.autotune(configs=[], key=[], do_bench=len)\n@triton.jit\ndef k(p): pass",
        "`do_bench`",
    ),
    "ready-made code": ('C = triton.Config({}, ir_override="a.ptx")', "`ir_override`"),
    "options for the assembler": ("C = triton.Config({'ptx_options': '-v'})", "`ptx_options` in a Config"),
    "options among kwargs": ("C = triton.Config(kwargs={'extern_libs': 1})", "`extern_libs` in a Config"),
    "ready-made code, unpacked": ("C = triton.Config({}, **{'ir_override': 'a.ptx'})", "`ir_override`"),
    "ready-made code by a name": ("D = {'num_warps': 4}\nC = triton.Config({}, **D)", "`**`"),
    "hook that is unpacked": (
        "def hook(nargs): print(nargs)\nC = triton.Config({}, **{'pre_hook': hook})",
        "as a value",
    ),
    "hook that works": (
        'def hook(nargs): nargs["out_ptr"].zero_()\nC = triton.Config({}, pre_hook=hook)',
        "`.zero_`",
    ),
    "hook through a function, by position": (
        "def hook(nargs): print(nargs)\ndef made(pre_hook): return triton.Config({}, pre_hook=pre_hook)\n"
        "C = made(hook)",
        "a pre_hook",
    ),
    "hook through a function, one of two": (
        "def hook(nargs): print(nargs)\ndef made(hook): return triton.Config({}, pre_hook=hook)\n"
        "C = [made(None), made(hook=hook)]",
        "a pre_hook",
    ),
    "hook through a function, unpacked": (
        "def hook(nargs): print(nargs)\ndef made(n, h=None): return triton.Config({}, pre_hook=h)\n"
        "C = made(*[1, hook])",
        "a pre_hook",
    ),
    "hook behind numbers that are unpacked": (
        "def hook(nargs): print(nargs)\ndef made(n, h=None): return triton.Config({}, pre_hook=h)\n"
        "C = [made(*size, hook) for size in [(64,)]]",
        "a pre_hook",
    ),
    "hook in what is unpacked": (
        "def hook(nargs): print(nargs)\ndef made(n, h=None): return triton.Config({}, pre_hook=h)\n"
        "def every(h): return [made(*size) for size in [(64, h)]]\nC = every(hook)",
        "a pre_hook",
    ),
    "hook in a list that grows": (
        "def hook(nargs): print(nargs)\ndef made(n, h=None): return triton.Config({}, pre_hook=h)\n"
        "def every(h):\n    sizes = [64]\n    sizes.append(h)\n    return made(*sizes)\nC = every(hook)",
        "a pre_hook",
    ),
    "hook that is unpacked by a call": (
        "def hook(nargs): print(nargs)\ndef made(n, h=None): return triton.Config({}, pre_hook=h)\n"
        "def both(h): return 64, h\nC = made(*both(hook))",
        "a pre_hook",
    ),
    "hook that calls in a condition": (
        "def hook(nargs):\n    if print(nargs):\n        pass\nC = triton.Config({}, pre_hook=hook)",
        "a pre_hook",
    ),
    "hook that calls in a loop": (
        "def hook(nargs):\n    for a in zip(print(nargs)): pass\nC = triton.Config({}, pre_hook=hook)",
        "a pre_hook",
    ),
    "hook that calls by a key": (
        "def of(a): return print(a)\ndef hook(nargs):\n    a = min(nargs, key=of)\n"
        "C = triton.Config({}, pre_hook=hook)",
        "a pre_hook",
    ),
    "hook that calls one that prints": (
        "def more(nargs): print(nargs)\ndef hook(nargs):\n    more(nargs)\n"
        "C = triton.Config({}, pre_hook=hook)",
        "a pre_hook",
    ),
    "hook that launches": (
        'def hook(nargs):\n    x = nargs["x_ptr"]\n    a = kernel[(1,)](x, x, x, 1, BLOCK=64)\n'
        "C = triton.Config({}, pre_hook=hook)",
        "a pre_hook",
    ),
    "hook that calls itself": (
        "def hook(nargs):\n    hook(nargs)\nC = triton.Config({}, pre_hook=hook)",
        "a pre_hook",
    ),
    "hook that sets an argument": (
        'def hook(nargs):\n    nargs["n"] = 3\nC = triton.Config({}, pre_hook=hook)',
        "storing to",
    ),
    "hook that sets strides": (
        'def hook(nargs):\n    nargs["a_desc"].strides = [1, 1]\nC = triton.Config({}, pre_hook=hook)',
        "storing to",
    ),
    "hook that sets a base in a loop": (
        'def hook(nargs):\n    for a in ("a", "b"):\n        nargs[a].base = nargs["c"].base\n'
        "C = triton.Config({}, pre_hook=hook)",
        "storing to",
    ),
    "hook whose loop sets an argument": (
        'def hook(nargs):\n    for nargs["n"] in (1, 2): pass\nC = triton.Config({}, pre_hook=hook)',
        "storing to",
    ),
    "hook that calls for a name": (
        "def hook(nargs):\n    a = print(nargs)\nC = triton.Config({}, pre_hook=hook)",
        "a pre_hook",
    ),
    "hook through two functions": (
        "def hook(nargs): print(nargs)\ndef made(h): return triton.Config({}, pre_hook=h)\n"
        "def more(n, *, h=None): return made(h)\nC = more(1, h=hook)",
        "a pre_hook",
    ),
    "annotation by a name": ("HINT = 'print(1)'.replace('1', '2')\ndef f(a: HINT): return a", "`HINT`"),
    "annotation by a generic": ("HINT = list['print(1)']\ndef f(a: HINT): return a", "`HINT`"),
    "annotation by an optional": ("HINT = list['print(1)']\ndef f() -> 'HINT | None': return 1", "`HINT`"),
    "annotation by two names": ("ONE = 'print(1)'\nHINT = ONE\ndef f(a: HINT): return a", "`HINT`"),
    "annotation by a field": (
        "class T(NamedTuple):\n    HINT: str = 'print(1)'\ndef f(a: T.HINT): return a",
        "`T.HINT`",
    ),
    "decorator by a name": ("mine = triton.cdiv(4, 2)\n@mine\ndef f(): pass", "the decorator `@mine`"),
    "decorator by one of two": (
        "mine = triton.heuristics({})\nmine = triton.cdiv\n@mine\ndef f(): pass",
        "the decorator `@mine`",
    ),
    "data class": (
        "from dataclasses import dataclass",
        "write a typing.NamedTuple of constants",
    ),
    "data classes": ("import dataclasses", "write a typing.NamedTuple of constants"),
    "hook that calls": ("def hook(nargs): print(nargs)\nC = triton.Config({}, pre_hook=hook)", "a pre_hook"),
    "grid that adds": (
        'def grid(meta):\n    sums = meta["X"]\n    sums += meta["Y"]\n    return (1,)\n'
        "def f(x): kernel[grid](x)",
        "changes what Triton gave",
    ),
    "heuristic that gives a tensor": (
        '@triton.heuristics({"Z": lambda args: torch.zeros(9)})\n@triton.jit\ndef k(p, Z): tl.store(p, 1)',
        "gives a tensor to Triton",
    ),
    "table of functions": ("T = {'a': lambda x: x}\ndef f(x): return T['a'](x)", "calls an item"),
    "hook as a lambda": ("C = triton.Config({}, pre_hook=lambda nargs: None)", "a pre_hook"),
    "block that is imported after all": (
        'if __name__ == "__main__":\n    pass\nelse:\n    import os',
        "`import os`",
    ),
    "block under another condition": ('if __name__ != "__main__":\n    import os', "`import os`"),
}


@pytest.mark.parametrize(("code", "words"), AT_MODULE_LEVEL.values(), ids=AT_MODULE_LEVEL)
def test_line_of_the_module_is_refused(code, words):
    outcome = verdict(above(code))
    assert outcome is not None, "permitted"
    wheres = [outcome.where]
    assert LINE <= outcome.frames[0].line <= LINE + code.count("\n"), outcome.where
    assert words in wheres[0] or "`__name__`" in wheres[0], outcome.where
    refused(above(code), outcome.frames[0].line, "")


HOOKS = {
    "by a helper, behind sizes that are unpacked": (
        "def hook(nargs):\n    nargs['a_desc'].block_shape = [nargs['BLOCK']]\n"
        "def made(m, n, hook=None):\n    return triton.Config({'BLOCK': m}, num_warps=n, pre_hook=hook)\n"
        "SIZES = [(64, 4), (128, 8)]\nPLAIN = [made(*size) for size in SIZES]\n"
        "C = [made(*size, hook) for size in SIZES] + [made(*size, hook=hook) for size in SIZES]"
    ),
    "by a helper, in a loop of the module": (
        "def made(m, n, pre_hook=None):\n    return triton.Config({}, num_warps=n, pre_hook=pre_hook)\n"
        "C = []\nfor sizes in itertools.product((64, 128), [4, 8]):\n    C.append(made(*sizes))"
    ),
    "by a helper, with numbers behind sizes that are unpacked": (
        "def made(m, n, k, warps, pre_hook=None):\n    return triton.Config({}, pre_hook=pre_hook)\n"
        "C = []\nfor sides in ((256, 128), (128, 256)):\n    C.append(made(*sides, 64, 8))"
    ),
    "by conditions on meta-parameters": (
        "def hook(nargs):\n    m, n = nargs['BLOCK_M'], nargs.get('BLOCK_N', 64)\n"
        "    if nargs['EPILOGUE'] and n > 64:\n        nargs['c_desc'].block_shape = [m, n // 2]\n"
        "    elif not isinstance(nargs['c_desc'], torch.Tensor):\n"
        "        nargs['c_desc'].block_shape = [m, max(n, 16)]\n    else:\n        return\n"
        "    nargs['a_desc'].block_shape = [m, n] if nargs['T'] else [n, m]\n"
        "C = [triton.Config({}, pre_hook=hook)]"
    ),
    "by several assignments and a loop": (
        "def hook(nargs):\n    size: int = triton.cdiv(nargs['M'], 2)\n"
        "    for name in ('a_desc', 'b_desc'):\n        nargs[name].block_shape = [size, 64]\n"
        "    nargs['c_desc'].block_shape = nargs['d_desc'].block_shape = [size, size]\n"
        "    (nargs['d_desc'].block_shape, size) = [64, 64], 3\nC = [triton.Config({}, pre_hook=hook)]"
    ),
    "by a function that it calls": (
        "def common(nargs):\n    nargs['a_desc'].block_shape = [nargs['BLOCK']]\n"
        "def hook(nargs):\n    common(nargs)\n    nargs['b_desc'].block_shape = [64]\n"
        "C = [triton.Config({}, pre_hook=hook)]"
    ),
}


@pytest.mark.parametrize("code", HOOKS.values(), ids=HOOKS)
def test_a_hook_may_set_block_shapes_in_any_plain_way(code):
    assert "pre_hook=" in code
    assert verdict("import itertools\n" + above(code)) is None


def test_a_file_of_many_hooks_is_read_quickly():
    code = "".join(
        f"def hook{at}(nargs):\n" + f"    hook{at + 1}(nargs)\n" * 30 for at in reversed(range(20))
    )
    code = "def hook20(nargs): pass\n" + code + "C = [triton.Config({}, pre_hook=hook0)]"
    begin = time.monotonic()
    assert verdict(above(code)) is None
    assert time.monotonic() - begin < 10


def test_the_line_named_is_the_line():
    refused(around("n = 1", "torch.mm(x, y)"), LINE + 2, "`torch.mm` is not permitted; of torch a lab needs")
    refused(
        "import os\n" + above(""),
        1,
        "`import os` is not permitted; a lab needs torch, triton, math and typing",
    )


PERMITTED_INSIDE = {
    "allocation": "out = torch.empty_like(x) if out is None else out",
    "allocation by hand": "out = torch.empty((x.shape[0],), device=x.device, dtype=x.dtype)",
    "another name for a choice of its own": "out = torch.empty_like(x) if out is None else out\nkept = out\n"
    "for kept in (kept, out):\n    kept = kept if kept is out else out\nn = kept.numel()",
    "checks": 'assert x.shape == y.shape and x.is_contiguous(), f"shapes {x.shape} and {y.shape}"',
    "error": 'if x.dtype != y.dtype:\n    raise ValueError(f"{x.dtype} is not {y.dtype}")',
    "sizes": "n, m = x.numel(), x.size(0)\nblocks = -(-n // 64) * 2 + m % 3",
    "sizes from a shape": "shape = (*x.shape, 1)\nwide = shape[0] * 2",
    "strides": "s = [t.stride(0) * 2 for t in (x, y)]",
    "enumerated": "for i, t in enumerate((x, y)):\n    j = i + t.stride(0)",
    "zipped": "for n, t in zip((1, 2), (x, y)):\n    j = n * t.numel()",
    "helper with two results": "def prepare(t):\n    return t.contiguous(), t.numel()\n"
    "t, n = prepare(x)\nm = n + 1",
    "local list": "found = []\nfound.append(x.numel())\nfound[0] = 3\nfound += [4]",
    "local dict": 'meta = dict(BLOCK=64)\nmeta["n"] = 2\nmeta.update(k=3)',
    "lambda grid": 'grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)',
    "nested grid": 'def grid(meta):\n    return (triton.cdiv(x.numel(), meta["BLOCK"]) * 2,)',
    "multiprocessors": "sms = torch.cuda.get_device_properties(x.device).multi_processor_count\n"
    "blocks = 2 * sms",
    "figures of a dtype": "low = torch.finfo(x.dtype).min * 2",
    "variable named input": "input = x\nn = input.numel() + 1",
    "device guard": "with torch.cuda.device(x.device):\n    pass",
    "guards": "if not x.is_cuda and x.device.type != 'cpu':\n    raise RuntimeError(f'{x.device} is no GPU')",
    "strides compared": "if x.stride() != y.stride() or x.dim() < 1:\n    raise TypeError('strides')",
    "sorted by a key": "first = sorted([x, y], key=lambda t: t.numel() * 2)[0]",
    "while and walrus": "n = 1\nwhile (n := n * 2) < x.numel():\n    pass",
    "type": "same = isinstance(x, torch.Tensor)",
    "zeroed": "out.zero_()",
    "quoted annotation": "n: 'int' = 1\nshape: 'torch.Size | None' = None",
    "quoted annotation in another": "found: Optional['torch.Tensor'] = None",
    "literal": "way: Literal['forward', 'backward'] = 'forward'",
    "list with more by a choice": "all_of = [('x', x)] + ([('out', out)] if out is not None else [])\n"
    "for name, t in all_of:\n    n = t.numel() + len(name)",
    "frozen set": "kinds = frozenset((torch.float32, torch.float16))\nknown = x.dtype in kinds",
    "tensors by a list and a dict": "given = [x, y, out]\nrest = {'n': 1, 'BLOCK': 4}\n"
    "kernel[(1,)](*given, **rest)\nkernel[(1,)](*given, 1, 4)\n"
    "kernel[(1,)](**{'x_ptr': x, 'y_ptr': y, 'out_ptr': out}, n=1, BLOCK=x.numel())",
    "options by a dict": "opts = {'num_warps': 4}\nkernel[(1,)](x, y, out, 1, BLOCK=2, **opts)",
    "kernel by a choice": "chosen = kernel if x.numel() > 9 else kernel\nchosen[(1,)](x, y, out, 1, BLOCK=2)",
    "launch in two steps": 'grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"] * 2),)\n'
    "launch = kernel[grid]\nlaunch(x, y, out, 1, BLOCK=2)",
    "percent formatting": 'text = "%s elements" % x.numel()',
    "local import": "import math\nn = math.ceil(x.numel() / 3)",
}


@pytest.mark.parametrize("code", PERMITTED_INSIDE.values(), ids=PERMITTED_INSIDE)
def test_honest_line_of_the_function_is_permitted(code):
    compile(around(code), "file", "exec")
    assert verdict(around(code)) is None


PERMITTED_ABOVE = {
    "imports": "from __future__ import annotations\nimport math\nfrom typing import Optional, Tuple\n"
    "from torch import Tensor\nfrom triton import cdiv, language as tl3\n"
    "from triton.language.extra import libdevice\n"
    "from triton.tools.tensor_descriptor import TensorDescriptor",
    "gluon": "from triton.experimental import gluon\nfrom triton.experimental.gluon import language as gl\n"
    "from triton.experimental.gluon.language.nvidia.hopper import tma, mbarrier, fence_async_shared\n"
    "from triton.experimental.gluon.nvidia.hopper import TensorDescriptor\n"
    "@gluon.jit\ndef k(desc, layout: gl.constexpr):\n"
    "    smem = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)\n"
    "    tma.async_copy_shared_to_global(desc, [0, 0], smem)\n    tma.store_wait(0)",
    "configs": "CONFIGS = [triton.Config({'BLOCK': b}, num_warps=w) for b in (64, 128) for w in (4, 8) "
    "if b > w]\n"
    "CONFIGS.append(triton.Config({'BLOCK': 32}, **{'num_warps': 2}))",
    "quoted annotations": "def f(t: 'torch.Tensor', n: 'int' = 1, *, out: 'torch.Tensor | None' = None) "
    "-> 'tuple[torch.Tensor, int]':\n    return t, n",
    "alias of types": "Way = Literal['forward', 'backward']\nEither = Optional[Way]\n"
    "def f(n: Way, m: Either, c: 'triton.Config'):\n    return n",
    "autotuner by a name": "tuned: 'Literal' = triton.autotune(configs=[triton.Config({})], key=['n'])\n"
    "@tuned\n@triton.jit\ndef k(p, n):\n    tl.store(p, n)",
    "constant of one kernel, not of another": "@triton.jit\ndef k(y_ptr, BLOCK):\n    tl.store(y_ptr, 1)\n"
    "def either(which, t):\n    which[(1,)](y_ptr=t, BLOCK=t)",
    "frozen set": "KINDS = frozenset({torch.float32, torch.float16})",
    "hook through a function": "def hook(nargs):\n    nargs['d'].block_shape = [nargs['BLOCK']]\n"
    "def made(hook, n: int):\n    return [triton.Config({'BLOCK': n}, pre_hook=hook)]\n"
    "ALL = made(hook, 64) + made(None, 64)",
    "configs by a generator": "def many():\n    for b in (64, 128):\n"
    "        yield triton.Config({'BLOCK': b})\n"
    "CONFIGS = list(many())",
    "constants": "ROWS, COLS = 16, 128\nTILE = ROWS * COLS\nLOG2_E: float = 1.44\n"
    "NAMES = {torch.float16: 'fp16'}",
    "helper kernels and methods": "@triton.jit\ndef fold(a, b):\n    return a + b\n@triton.jit\n"
    "def k(p, BLOCK: tl.constexpr):\n"
    "    v = tl.load(p + tl.arange(0, BLOCK)).to(tl.float32)\n"
    "    tl.store(p, tl.reduce(v, 0, fold) + v.max(axis=0))\n"
    "    d = tl.make_tensor_descriptor(p, [1], [1], [BLOCK])\n    d.store([0], v.to(p.dtype.element_ty))",
    "heuristics": '@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})\n@triton.jit\n'
    "def k(p, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):\n    tl.store(p, n)",
    "pruning": "def prune(configs, nargs, **kwargs):\n    size = nargs['n'] * 2\n    kept = []\n"
    "    for c in configs:\n"
    "        if c.kwargs['BLOCK'] <= size:\n            kept.append(c)\n    return kept or configs[:1]\n"
    "@triton.autotune(configs=[triton.Config({'BLOCK': 64})], key=['n'], "
    "prune_configs_by={'early_config_prune': prune})\n"
    "@triton.jit\ndef k(p, n, BLOCK: tl.constexpr):\n    tl.store(p, n)",
    "block-shape hook": "from triton.tools.tensor_descriptor import TensorDescriptor\ndef hook(nargs):\n"
    "    if not isinstance(nargs['d'], TensorDescriptor):\n        return\n    m = nargs['M']\n"
    "    nargs['d'].block_shape = [m, 64]\n"
    "def configs(pre_hook=None):\n    return [triton.Config({'BLOCK': 64}, pre_hook=pre_hook)]\n"
    "ALL = configs(pre_hook=hook)",
    "autograd": "class F(torch.autograd.Function):\n    '''Doc.'''\n    @staticmethod\n"
    "    def forward(ctx, x, eps: float):\n"
    "        ctx.eps, ctx.rows = eps * 2, x.shape[0]\n        ctx.save_for_backward(x)\n        return x\n"
    "    @staticmethod\n    def backward(ctx, dy):\n        (x,) = ctx.saved_tensors\n"
    "        n = ctx.rows * 2\n"
    "        return F.helper(dy.contiguous(), n), None\n    @staticmethod\n    def helper(t, n):\n"
    "        return t.view(n // 2)\n"
    "def f(x, eps=1e-5):\n    return F.apply(x, eps + 1)",
    "wrapped kernel": "def plain(p):\n    tl.store(p, 1)\n"
    "k = triton.autotune(configs=[], key=[])(triton.jit(plain))",
    "library functions": "from triton.language.extra import libdevice\n@triton.jit\ndef k(p):\n"
    "    tl.store(p, libdevice.tanh(tl.load(p)))",
    "allocator": "def scratch(size: int, alignment: int, stream: int | None):\n"
    "    return torch.empty(size, device='cuda', dtype=torch.int8)\ndef f():\n"
    "    triton.set_allocator(scratch)",
    "experiments": 'if __name__ == "__main__":\n    import os\n    x = torch.randn(9)\n'
    "    print((x + x) @ x, os.environ)",
    "launch metadata and a warm-up": "def facts(grid, kernel, args):\n    ret = {}\n"
    "    M, N = args['M'], args['N']\n"
    "    ret['flops'] = 2.0 * M * N\n    return ret\n"
    "@triton.jit(launch_metadata=facts)\ndef k(p, M, N):\n    tl.store(p, M)\n"
    "def f(x):\n    done = k.warmup(x, 1, 2, num_warps=8, grid=(1,))\n    done._init_handles()\n"
    "    programs = 65536 // (done.n_regs * 32) + done.metadata.shared\n    done[(programs, 1, 1)](x, 1, 2)",
    "compile-time function": "@triton.constexpr_function\ndef half(n):\n    return n // 2",
}


@pytest.mark.parametrize("code", PERMITTED_ABOVE.values(), ids=PERMITTED_ABOVE)
def test_honest_lines_of_the_module_are_permitted(code):
    source = f"{code}\n{above('')}" if code.startswith("from __future__") else above(code)
    compile(source, "file", "exec")
    assert verdict(source) is None


def test_lab_that_permits_more():
    code = "from triton.tools.tensor_descriptor import TensorDescriptor"
    assert (
        verdict(above(code), dataclasses.replace(LAB, also_allowed=("triton.tools.tensor_descriptor",)))
        is None
    )
    refused(above(code), LINE, "TensorDescriptor", dataclasses.replace(LAB, also_allowed=()))


def test_named_tuple_has_fields_in_capitals():
    code = (
        "from typing import NamedTuple\nclass Tile(NamedTuple):\n    ROWS: int\n    COLS: int = 2\n"
        "def f(t: Tile): return t.ROWS * t.COLS\ndef g(): return f(Tile(ROWS=3))"
    )
    assert verdict(above(code)) is None
    refused(above(code.replace("ROWS", "gi_frame")), LINE + 2, "the field gi_frame")
    refused(above(code.replace("ROWS", "T")), LINE + 2, "the field T")
    refused(above(code.replace("= 2", "= [2]")), LINE + 3, "`[2]` in class Tile")
    refused(above(code.replace("(NamedTuple)", "(NamedTuple, metaclass=print)")), LINE + 1, "class Tile")


REACHING = ("frame", "globals", "code", "dict", "class", "builtins", "import", "module", "fn", "run", "cache")


def test_no_object_of_a_program_has_an_attribute_in_capitals_that_reaches_further():
    def function():
        yield

    autotuned = importlib.import_module("triton.runtime.autotuner").Autotuner
    compiled = importlib.import_module("triton.compiler.compiler").CompiledKernel
    jitted = importlib.import_module("triton.runtime.jit").JITFunction
    some = [
        function,
        function(),
        function.__code__,
        torch.empty(1),
        torch.float16,
        torch.device("cpu"),
        1,
        "",
        {},
    ]
    for one in [*some, torch.finfo(torch.float32), torch.autograd.Function, autotuned, compiled, jitted]:
        assert [name for name in dir(one) if name.isupper() and len(name) > 1] == []


def test_names_on_ctx_are_none_of_autograd():
    kept = {}

    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            kept["ctx"] = ctx
            return x.clone()

        @staticmethod
        def backward(_, dy):
            return dy

    Two.apply(torch.ones(1, requires_grad=True)).sum().backward()
    found = {name for name in dir(kept["ctx"]) if not name.startswith("_")}
    assert found <= language.CTX_OWN | language.CTX


def test_modules_inside_of_open_modules_stay_closed():
    gluon = language.open_modules(language.OPTIONAL)
    found = 0
    for module in sorted(language.OPEN | gluon):
        try:
            inside = importlib.import_module(module)
        except ImportError:
            continue  # of another version of Triton
        for name in dir(inside):
            if isinstance(getattr(inside, name), types.ModuleType) and not name.startswith("_"):
                assert not language.public(name), f"{module}.{name}"
                found += 1
    assert found > 20


def test_an_operator_that_one_exercise_may_call_is_permitted_in_its_file_alone():
    code = "def product(a, b): return torch.mm(a, b)"
    mine, other = LAB.exercises[0], dataclasses.replace(LAB.exercises[0], name="another", file="another.py")
    refused(above(code), LINE, "torch.mm", dataclasses.replace(LAB, exercises=(mine, other)))
    may = dataclasses.replace(mine, may_call=("mm",))
    assert verdict(above(code), dataclasses.replace(LAB, exercises=(may, other))) is None
    elsewhere = dataclasses.replace(other, may_call=("mm",))
    refused(above(code), LINE, "torch.mm", dataclasses.replace(LAB, exercises=(mine, elsewhere)))


@pytest.mark.parametrize("name", ["", "torch.", "a-b", ".torch"])
def test_also_allowed_holds_names_of_modules(name):
    with pytest.raises(ValueError, match="also_allowed"):
        Lab(title="t", exercises=LAB.exercises, also_allowed=(name,))


LAUNCHES = {
    "none": ("    return out", "launches no kernel of this file"),
    "of something else": ("    y[(1,)](x)\n    return out", "none of its own"),
    "of a kernel that stores nothing": ("    idle[(1,)](x)\n    return out", "its kernel stores nothing"),
}
IDLE = "@triton.jit\ndef idle(p):\n    tl.load(p)\n"


@pytest.mark.parametrize(("body", "words"), LAUNCHES.values(), ids=LAUNCHES)
def test_function_without_a_kernel_that_stores_is_refused(body, words):
    refused(f"{HEAD}{IDLE}def elementwise_add(x, y, *, out=None):\n{body}\n", LINE + 3, words)


@pytest.mark.parametrize(
    "body",
    [
        "def run(k, x, y, out): k[(1,)](x, y, out, 1, BLOCK=64)\n"
        "def elementwise_add(x, y, *, out=None): run(kernel, x, y, out)",
        "class F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
        "        kernel[(1,)](x, x, x, 1, BLOCK=1)\n"
        "        return x\ndef elementwise_add(x, y, *, out=None): return F.apply(x)",
        "tuned = triton.autotune(configs=[], key=[])(kernel)\n"
        "def elementwise_add(x, y, *, out=None): tuned[(1,)](x, y, out, 1)",
        "@triton.jit\ndef put(p): tl.atomic_add(p, 1)\n@triton.jit\ndef outer(p): put(p)\n"
        "def elementwise_add(x, y, *, out=None): outer[(1,)](x)",
        "@triton.jit\ndef open_task(p):\n    tl.static_assert(False, 'TODO 1: store it')\n"
        "def elementwise_add(x, y, *, out=None): open_task[(1,)](x)",
        "@triton.jit\ndef typo(p): tl.stoer(p, 1)\ndef elementwise_add(x, y, *, out=None): typo[(1,)](x)",
        "def something_else(): return 1",
    ],
    ids=[
        "helper",
        "autograd",
        "wrapped",
        "kernel in a kernel",
        "task still open",
        "misspelt",
        "no such function",
    ],
)
def test_launch_is_found_through_the_files_own_functions(body):
    assert verdict(HEAD + body) is None


def test_every_violation_has_its_frame_up_to_eight():
    outcome = verdict(around(*["torch.mm(x, y)"] * 12))
    assert [frame.line for frame in outcome.frames] == list(range(LINE + 1, LINE + 9))
    assert {frame.function for frame in outcome.frames} == {"elementwise_add"}


@pytest.mark.parametrize("operator", ["-", "not ", "lambda: ", "a.", "1+"])
def test_what_is_nested_too_deeply_is_refused_and_never_let_through(operator):
    outcome = verdict(f"x = {operator * 4000}b\n" + above(""))
    assert outcome is not None
    assert outcome.where == DEEP


def test_a_file_of_excessive_length_is_refused():
    assert verdict(above("x = 1\n" * 40_000)).where == LONG
    began = time.monotonic()
    verdict(
        above("def f(x, y):\n    z = (x, y)\n    w = (z,) * 3 + (z, z)\n    return w\nA = f(1, 2)\n" * 300)
    )
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("text", ["", "\0", "x = (", "def", "\ud800", "x = 1" * 30])
def test_what_is_no_python_is_left_to_the_compiler(text):
    assert verdict(text) is None


TEXTS = [path.read_text("utf-8") for path in TREES]
TOKENS = [
    "torch",
    ".mm",
    "lambda:",
    "(",
    ")",
    "[",
    "]",
    ":=",
    "@",
    "import os",
    "*",
    "**",
    "=",
    "\n",
    "match x:",
    "del x",
    "0",
]


@given(seed=st.integers(0, 2**32), text=st.sampled_from(TEXTS))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_mutation_of_a_file_makes_it_raise(seed, text):
    chance = random.Random(seed)
    lines = text.split("\n")
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(lines))
        match chance.randrange(4):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, chance.choice(lines))
            case 2:
                cut = chance.randint(0, len(lines[at]))
                lines[at] = f"{lines[at][:cut]} {chance.choice(TOKENS)} {lines[at][cut:]}"
            case 3:
                indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
                lines.insert(at, indent + chance.choice(list(IN_THE_FUNCTION.values()))[0].split("\n")[0])
    for entry in ENTRIES.values():
        for exercise in entry.lab.exercises[:1]:
            verdict("\n".join(lines), entry.lab, exercise)


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from([*TOKENS, "x", " ", ",", "def f():"]), max_size=12).map("".join)
)
@settings(max_examples=60, deadline=None)
def test_no_text_makes_it_raise(text):
    verdict(text)


def test_every_name_of_torch_and_triton_exists():
    for full in sorted(language.NAMES - {"triton.runtime.driver.active.utils.get_device_properties"}):
        root, *rest = full.split(".")
        if "driver.active" in full:
            continue  # there is none without a GPU
        value = importlib.import_module(root)
        for part in rest:
            value = getattr(value, part)


def test_nothing_on_the_list_of_torch_computes():
    computing = {"mm", "matmul", "softmax", "add", "exp", "sum", "mul", "einsum", "compile", "ops", "nn"}
    assert computing.isdisjoint(language.TORCH)
    assert computing.isdisjoint(language.HOST)


def test_page_of_the_language_is_current_and_fits_on_paper():
    text = (catalog.ROOT / "labs" / "LANGUAGE.md").read_text("utf-8")
    assert "(LANGUAGE.md)" in (catalog.ROOT / "labs" / "README.md").read_text("utf-8")
    assert (
        sum(1 + len(line) // 130 for line in text.split("\n")) <= 90
    )  # lines of 130 characters: A4 in 7 point
    assert "policy" in [one.label for one in markdown.regions(text, LABEL)[0]]
    assert rewrite(text, catalog.ROOT) == text


# Classes that make a value of a kernel, or a layout, from what they are given, and do nothing else.
REVIEWED = {
    *("const", "constexpr", "dtype", "block_type", "pointer_type", "range", "static_range", "slice"),
    *("tensor", "tensor_descriptor", "tuple", "TensorDescriptor", "TRITON_MAX_TENSOR_NUMEL"),
    *("shared_memory_descriptor", "shared_memory_descriptor_type", "distributed_type"),
    *("tensor_memory_descriptor", "tensor_memory_descriptor_type"),
    *("warpgroup_mma_accumulator", "warpgroup_mma_accumulator_type"),
    *("constexpr_function", "jit"),  # decorators, which the screen looks at where they stand
}


def test_every_name_of_a_module_that_is_open_is_of_a_kernel():
    """A public function of Triton that no kernel calls may evaluate a text, as str_to_ty does."""
    found = []
    modules = language.OPEN | language.open_modules(language.OPTIONAL)
    for module in sorted(modules - {"math"}):  # Python's own, of numbers alone
        try:
            opened = importlib.import_module(module)
        except ImportError:
            continue  # not in this version
        stubs = module.endswith("libdevice")  # functions with a name and no body
        for name, value in vars(opened).items():
            is_of_a_kernel = (
                isinstance(value, (triton.JITFunction, tl.dtype, types.ModuleType))
                or getattr(value, "__triton_builtin__", False)
                or type(value).__name__ == "ConstexprFunction"
                or name in REVIEWED
                or name.endswith("Layout")
                or (stubs and isinstance(value, types.FunctionType))
            )
            if language.public(name) and not is_of_a_kernel:
                found.append(f"{module}.{name}")
    assert not found


@pytest.mark.parametrize("name", ["str_to_ty", "condition", "tuple_type"])
def test_a_helper_of_the_compiler_is_refused(name):
    refused(around(f"tl.{name}(x, None)"), LINE + 1, f"tl.{name}")
