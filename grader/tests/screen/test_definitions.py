"""Triton searches the text of a file for a kernel: what the screen permits has one kernel to be found."""

import ast
import re
import textwrap
from pathlib import Path

import pytest

from grader.course import catalog
from grader.course.submission import Submission
from grader.screen.definitions import looks_like_another
from grader.screen.policy import screen

LAB = next(entry for entry in catalog.find() if entry.number == 1).lab
ADD = LAB.exercises[0]
IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n"
BODY = "    tl.store(out_ptr + tl.arange(0, 64), tl.load(x_ptr + tl.arange(0, 64)))\n"
KERNEL = f"def kernel(x_ptr, out_ptr):\n{BODY}"
JIT = f"@triton.jit\n{KERNEL}"
LAUNCH = "def elementwise_add(x, y, *, out=None):\n    kernel[(1,)](x, out)\n    return out\n"
OTHER = "def kernel(x_ptr, out_ptr): exec('1')"
IN_TEXT = "begins with `def`"

REFUSED = {
    "in its docstring": (JIT.replace("\n    tl", f'\n    """\n{OTHER}\n    """\n    tl'), IN_TEXT),
    "in its docstring, indented": (
        JIT.replace("\n    tl", f'\n    """\n   {OTHER}\n   """\n    tl'),
        IN_TEXT,
    ),
    "behind a form feed": (JIT.replace("\n    tl", f'\n    """\n\f{OTHER}\n    """\n    tl'), IN_TEXT),
    "behind a wide blank": (JIT.replace("\n    tl", f'\n    """\n\u3000{OTHER}\n    """\n    tl'), IN_TEXT),
    "behind a bare return": (JIT.replace("\n    tl", f'\n    """\r{OTHER}\r    """\n    tl'), IN_TEXT),
    "with a tabulator": (JIT.replace("\n    tl", '\n    """\ndef\tkernel(): 1\n    """\n    tl'), IN_TEXT),
    "in a text of its body": (JIT + f'    note = """\n{OTHER}\n"""\n', IN_TEXT),
    "in a text in brackets": (JIT + f'    note = ("a" """\n{OTHER}\n""", 1)\n', IN_TEXT),
    "in a joined string": (JIT + f'    note = "\\\n{OTHER}"\n', IN_TEXT),
    "in an f-string": (JIT + f'    note = f"""\n{OTHER}\n{{1}}"""\n', IN_TEXT),
    "in the default of a parameter": (
        JIT.replace("out_ptr):", f'out_ptr, note="""\n{OTHER}\n"""):'),
        IN_TEXT,
    ),
    "in a decorator": (
        f'@triton.heuristics({{"N": lambda args: 0 * len("""\n{OTHER}\n""")}})\n{JIT}',
        IN_TEXT,
    ),
    "in the text above": (f'NOTE = """\n{OTHER}\n"""\n{JIT}', IN_TEXT),
    "after another name": (
        f"{KERNEL}other = triton.jit(kernel)\n".replace("    tl", f'    """\n{OTHER}"""\n    tl'),
        IN_TEXT,
    ),
    "within it": (JIT + "    def inner(a):\n        return a\n", "a function in a kernel"),
    "its own, split": (JIT.replace("def kernel", "def\\\n  kernel"), "`def name(`"),
    "its own, by a tabulator": (JIT.replace("def kernel", "def\tkernel"), "`def name(`"),
    "its own, its bracket split": (JIT.replace("kernel(", "kernel\\\n("), "`def name(`"),
    "its own, of a host function": (
        KERNEL.replace("def k", "def\\\n  k").replace("kernel", "other") + JIT,
        "`def name(`",
    ),
    "a decorator split": (f"@\\\ntriton.jit\n{KERNEL}", "on the line of its @"),
    "a decorator in brackets": (f"@(\n# lambda: 1\ntriton.jit\n)\n{KERNEL}", "on the line of its @"),
}
for _way in ("kernel if 1 else kernel", "fn=kernel", "*[kernel]", "print", "lambda x_ptr, out_ptr: 1"):
    REFUSED[f"by {_way}"] = (f"{KERNEL}other = triton.jit({_way})\n", "one function of this file by its name")
PERMITTED = {
    "a kernel by a call": f"{KERNEL.replace('kernel', 'plain')}kernel = triton.jit(plain)\n",
    "a word of a docstring": JIT.replace(
        "\n    tl", '\n    """\n    The def of it, as\n    default. undef\n    """\n    tl'
    ),
    "a comment": JIT.replace("\n    tl", f"\n    # {OTHER}\n    tl"),
    "a function in host code": JIT
    + "def more(n):\n    def grid(meta):\n        return (n,)\n    return grid\n",
    "decorators of more lines": f"@triton.autotune(\n    [triton.Config({{}})],\n    key=[],\n)\n{JIT}",
    "windows line ends": JIT.replace("\n", "\r\n"),
}


def verdict(source: str):
    ast.parse(source)
    return screen(Submission(Path(ADD.file), source.encode()), LAB, ADD)


@pytest.mark.parametrize(("source", "words"), REFUSED.values(), ids=REFUSED)
def test_a_text_in_which_triton_may_find_another_kernel_is_refused(source, words):
    outcome = verdict(IMPORTS + source + LAUNCH)
    assert outcome is not None, "permitted"
    assert words in outcome.where
    assert ";" in outcome.where


@pytest.mark.parametrize("source", PERMITTED.values(), ids=PERMITTED)
def test_a_text_that_holds_no_other_definition_is_permitted(source):
    assert verdict(IMPORTS + source + LAUNCH) is None


def cuts(lines):
    """Triton's two searches, written anew: the interpreter's last line, and the compiler's first match."""
    last = [at for at, line in enumerate(lines) if line.strip().startswith("def ")][-1]
    yield textwrap.dedent("".join(lines[last:]))
    text = textwrap.dedent("".join(lines))
    yield text[re.search(r"^def\s+\w+\s*\(", text, re.MULTILINE).start() :]


def test_both_searches_find_every_kernel_of_the_labs():
    found = 0
    for path in sorted(catalog.ROOT.glob("solutions/lab*/*.py")):
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        assert list(looks_like_another(tree, text)) == []
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.decorator_list:
                lines = text.splitlines(keepends=True)[node.decorator_list[0].lineno - 1 : node.end_lineno]
                node.decorator_list = []
                for cut in cuts(lines):
                    found += 1
                    assert ast.dump(ast.parse(cut).body[0]) == ast.dump(node)
    assert found > 20
