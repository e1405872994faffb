"""An integer argument that is 1 is a constant in a kernel: in the interpreter as on a GPU."""

import functools
from pathlib import Path

import pytest

from grader.tests.helpers.commands import python
from grader.tests.helpers.course import ROOT

LAUNCHES = Path(__file__).with_name("ones.py")
REFUSED_FOR_ONE = {
    "method", "dtype", "method_in_a_helper", "part_of_a_tuple", "counted_down", "changed_in_a_loop",
}  # fmt: skip


@functools.cache
def said(how):
    """What each launch says, by kernel and integer."""
    done = python(LAUNCHES, TRITON_INTERPRET=str(int(how == "interpreted")), PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr[-2000:]
    words = (line.split(" ", 2) for line in done.stdout.splitlines())
    return {(name, int(number)): text for name, number, text in words}


def refused(how):
    return {launch for launch, words in said(how).items() if words != "taken"}


def test_the_compiler_refuses_what_a_constant_cannot_do():
    """What the interpreter is compared with, in the Triton that is installed."""
    ones = {(name, 1) for name in REFUSED_FOR_ONE} | {("shape_of_a_block", 2)}
    assert refused("compiled") == ones | {("constant_of_a_helper", number) for number in (1, 2)}


def test_the_interpreter_refuses_the_same_launches():
    assert refused("interpreted") == refused("compiled")


@pytest.mark.parametrize("name", ["method", "dtype", "method_in_a_helper", "part_of_a_tuple"])
def test_the_interpreter_says_what_the_compiler_says(name):
    message = f"'int' object has no attribute '{'dtype' if name == 'dtype' else 'to'}'"
    assert said("interpreted")[name, 1] == message
    assert message in said("compiled")[name, 1]
