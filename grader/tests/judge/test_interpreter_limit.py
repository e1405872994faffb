"""An error that Triton's interpreter raises in a kernel that compiles is said to be the interpreter's."""

from textwrap import dedent

import pytest

from grader.course.spec import Verdict
from grader.judge.run import INTERPRETER_LIMIT

CASE = "elementwise_add/n=7,fp32"
TEXT = dedent("""\
    import torch, triton, triton.language as tl
    from triton.language.extra import libdevice

    @triton.jit
    def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n)
        LINE
        tl.store(out_ptr + at, x + tl.load(y_ptr + at, mask=at < n), mask=at < n)

    def elementwise_add(x, y, *, out=None):
        out = torch.empty_like(x) if out is None else out
        kernel[(1,)](x, y, out, x.numel(), BLOCK=8)
        return out
    """)


@pytest.mark.parametrize(
    ("line", "is_the_interpreters"),
    [
        ("x += 0.0 * libdevice.j0(x)", True),  # a Bessel function, which NumPy lacks
        ("x += 0.0 * tl.bessel(x)", False),  # not in Triton either
        ("tl.assume(n < 0)", False),  # compiles, and is wrong where it runs
    ],
)
def test_an_error_is_the_interpreters_if_the_call_compiles(submissions, line, is_the_interpreters):
    (outcome,) = submissions.grade(1, TEXT.replace("LINE", line), CASE).values()
    assert outcome.verdict is Verdict.CRASHED, outcome.where
    assert outcome.frames[0].code == line
    assert (outcome.cause == INTERPRETER_LIMIT) is is_the_interpreters, (outcome.where, outcome.cause)
