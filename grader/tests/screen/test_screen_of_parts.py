"""The screen and the file check of a file that imports another file of the student."""

import ast
from pathlib import Path

import pytest

from grader.course import catalog
from grader.course.parts import Part
from grader.course.spec import Verdict
from grader.course.submission import Submission
from grader.screen.file_check import check_part
from grader.screen.policy import screen, screen_part

LAB = next(entry for entry in catalog.find() if entry.lab.imports).lab
MAIN = next(one for one in LAB.exercises if one.name == "layer_norm_backward")
KERNEL = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
LAUNCHES = f"""{KERNEL}from layer_norm import help_me


def layer_norm_backward(dy, x, weight):
    return help_me(dy, x)
"""
TODO = """
def help_me(a, b):
    # BEGIN TODO 1: work (about 1 line)
    raise NotImplementedError("TODO 1: work")
    # END TODO 1
"""


def submission(name, text):
    ast.parse(text)
    return Submission(Path(name), text.encode())


def part(text, *names):
    return Part(submission("layer_norm.py", text), frozenset(names))


def screened(text, *parts):
    return screen(submission("layer_norm_backward.py", text), LAB, MAIN, parts)


def test_a_function_of_the_other_file_may_be_called_and_may_launch():
    other = part(KERNEL + "def help_me(a, b):\n    return a\n", "help_me")
    assert screened(LAUNCHES, other) is None
    assert screen_part(other, LAB) is None


def test_without_the_other_file_the_import_is_refused():
    assert screened(LAUNCHES).verdict is Verdict.POLICY


@pytest.mark.parametrize(
    "text",
    [
        "import torch as t\n\n\ndef help_me(a, b):\n    return a\n",
        "from torch import mm\n",
        "help_me = torch.mm\n",
    ],
)
def test_only_functions_that_the_other_file_defines_may_be_imported(text):
    wanted = LAUNCHES.replace("help_me", "t" if " as t" in text else "mm" if "mm" in text else "help_me")
    wanted = wanted if "help_me = " not in text else LAUNCHES
    assert screened(wanted, part(KERNEL + text, "help_me")).verdict is Verdict.POLICY


@pytest.mark.parametrize(
    "body", ["return a * b", "return a @ b", "return a.sum()", "return torch.mm(a, b)", "return -a + 1"]
)
def test_what_is_called_with_tensors_computes_nothing_with_them(body):
    other = part(f"{KERNEL}def help_me(a, b):\n    {body}\n", "help_me")
    assert screen_part(other, LAB).verdict is Verdict.POLICY


def test_what_the_other_file_returns_is_a_tensor():
    other = part(KERNEL + "def help_me(a, b):\n    return a\n", "help_me")
    text = LAUNCHES.replace("return help_me(dy, x)", "return help_me(dy, x) * 2")
    assert screened(text, other).verdict is Verdict.POLICY


def test_a_missing_file_an_open_task_and_an_error_are_named():
    missing = Part(Submission.read(Path("nowhere/layer_norm.py")), frozenset({"help_me"}))
    assert check_part(missing).verdict is Verdict.NOT_STARTED
    found = check_part(part(TODO, "help_me"))
    assert found.verdict is Verdict.NOT_STARTED
    assert "layer_norm.py" in found.where
    assert "TODO 1" in found.where
    assert check_part(part(TODO, "another")) is None
    broken = Part(Submission(Path("layer_norm.py"), b"def ("), frozenset())
    assert check_part(broken).verdict is Verdict.COMPILE_ERROR
