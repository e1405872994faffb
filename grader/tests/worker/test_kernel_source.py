"""The kernel that runs is the function that Python defined, whatever its text may be taken for."""

from textwrap import dedent

import pytest

from grader.tests.helpers.commands import python
from grader.tests.helpers.course import ROOT

BEGIN = dedent("""\
    import sys
    import torch, triton, triton.language as tl

    if "mended" in sys.argv:
        from grader.worker.kernel_source import read_from_the_tree
        read_from_the_tree()

    @triton.jit
    def twice(x):
        return x * 2

    """)
IN_THE_DOCSTRING = BEGIN + dedent('''\
    @triton.jit
    def kernel(x_ptr):
        """One.

    def kernel(x_ptr):
        tl.store(x_ptr, 2.0)
        \'\'\'
        """
        # \'\'\'
        tl.store(x_ptr, tl.load(x_ptr) + twice(0.5))
    ''')
IN_A_DECORATOR = BEGIN + dedent('''\
    @triton.heuristics({"ONE": lambda args: len("""
    def kernel(x_ptr, ONE: tl.constexpr):
        tl.store(x_ptr, 2.0)
        \'\'\'
    """)})
    @triton.jit
    def kernel(x_ptr, ONE: tl.constexpr):
        # \'\'\'
        tl.store(x_ptr, twice(0.5))
    ''')
RUN = """
x = torch.zeros(1)
kernel[(1,)](x)
print(x.item())
"""
READ = """
print(*[line.strip() for line in kernel.fn.src.splitlines() if "store" in line])
print(twice.src.splitlines()[0], len(kernel.fn.parse().body))
"""


@pytest.fixture
def printed(tmp_path):
    def run(text, *arguments, **environment):
        (tmp_path / "kernel.py").write_text(text)
        done = python(tmp_path / "kernel.py", *arguments, PYTHONPATH=str(ROOT), **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


def test_the_interpreter_runs_the_function_itself(printed):
    assert printed(IN_THE_DOCSTRING + RUN, TRITON_INTERPRET="1") == ["3.0"]  # as Triton comes
    assert printed(IN_THE_DOCSTRING + RUN, "mended", TRITON_INTERPRET="1") == ["1.0"]


def test_the_compiler_reads_the_function_itself(printed):
    assert printed(IN_A_DECORATOR + READ) == [
        "tl.store(x_ptr, 2.0) tl.store(x_ptr, twice(0.5))",
        "def twice(x): 1",
    ]
    assert printed(IN_A_DECORATOR + READ, "mended") == ["tl.store(x_ptr, twice(0.5))", "def twice(x): 1"]


def test_lines_of_an_error_are_those_of_the_file(printed):
    text = IN_THE_DOCSTRING.replace("+ twice(0.5))", '+ twice(0.5))\n    tl.static_assert(False, "here")')
    number = text.splitlines().index('    tl.static_assert(False, "here")') + 1
    text += "import traceback\ntry:\n    kernel[(1,)](torch.zeros(1))\nexcept Exception as error:\n"
    text += "    while error:\n        traceback.print_tb(error.__traceback__, file=sys.stdout)\n"
    text += "        error = error.__cause__\n"
    assert any(f"line {number}, in kernel" in line for line in printed(text, "mended", TRITON_INTERPRET="1"))


def test_a_function_without_a_file_is_left_to_triton(printed):
    text = BEGIN + dedent("""\
        exec("def add_one(x_ptr):\\n    x_ptr[0] += 1\\n")
        kernel = triton.jit(add_one)
        print(kernel.rewrite() is add_one)
        """)
    assert printed(text, "mended", TRITON_INTERPRET="1") == ["True"]
