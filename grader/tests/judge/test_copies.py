"""Where a tensor is made contiguous under a condition, and that a file without one says nothing."""

import pytest

from grader.judge.experiments.copies import conditional_copy
from grader.judge.repair.source import Source

FILE = """
def backward(dy, y):
    {line}
    return kernel(dy, y)
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("if dy.stride(1) == 0: dy = dy.contiguous()", "line 3 copies `dy` only where `dy.stride(1) == 0`"),
        ("dy = dy if dy.stride(0) > 1 else dy.contiguous()",
         "line 3 copies `dy` only where `dy.stride(0) > 1` is False"),
        ("dy = dy.contiguous() if dy.is_sparse else dy", "line 3 copies `dy` only where `dy.is_sparse`"),
        ("dy = dy.contiguous()", ""),
        ("if y.stride(1) == 0: y = y.contiguous()", ""),
        ("if dy.stride(1) == 0: dy = torch.clone(dy)", ""),
    ],
)  # fmt: skip
def test_the_condition_of_a_copy_is_told(line, said):
    assert conditional_copy(Source(FILE.replace("{line}", line)), "dy") == said


def test_of_two_copies_none_is_told():
    both = "if dy.stride(1) == 0: dy = dy.contiguous()\n    if dy.stride(1) == 2: dy = dy.contiguous()"
    assert conditional_copy(Source(FILE.replace("{line}", both)), "dy") == ""
