"""What kernels' parameters are, by the launches that hand them over."""

import ast

import pytest

from grader.judge.repair.candidates import candidates
from grader.judge.repair.kinds import Kind, kinds_of
from grader.judge.repair.launched import SIZE, STRIDE, Given, given
from grader.judge.repair.source import Source

FILE = """
import triton
import triton.language as tl


@triton.jit
def piece(base, up, along, u, v):
    return base + u[:, None] * up + v[None, :] * along


@triton.jit
def kernel(p, q, r, m, k, pm, pk, qk, qn, BLOCK: tl.constexpr):
    u = tl.arange(0, BLOCK)
    x = tl.load(piece(p, pm, pk, u, u), mask=u[:, None] < m, other=0.0)
    y = tl.load(q + u[:, None] * qn + u[None, :] * qn, mask=u[:, None] < k, other=0.0)
    tl.store(r + u, tl.sum(x * y, axis=1), mask=u < m)


def function(a, b, out):
    rows, cols = a.shape
    first, second = b.stride()
    kernel[(1,)](a, b, out, rows, k=cols, pm=a.stride(0), pk=a.stride(1), qk=first, qn=second, BLOCK=16)
"""


def functions(text):
    return {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


def test_strides_and_sizes_are_known_whatever_their_names():
    found = given(functions(FILE), ["piece", "kernel"])
    assert found["kernel"] == {
        "m": Given(SIZE, "a"), "k": Given(SIZE, "a"), "pm": Given(STRIDE, "a"), "pk": Given(STRIDE, "a"),
        "qk": Given(STRIDE, "b"), "qn": Given(STRIDE, "b"),
    }  # fmt: skip
    assert found["piece"] == {"up": Given(STRIDE, "a"), "along": Given(STRIDE, "a")}
    kinds = kinds_of(Source(FILE).functions["kernel"])
    assert {kinds[name] for name in ("m", "k")} == {Kind.SIZE}
    assert {kinds[name] for name in ("pm", "qn")} == {Kind.STRIDE}


@pytest.mark.parametrize(
    ("launch", "parameter", "expected"),
    [
        ("kernel[(1,)](a.numel(), *a.stride(), 3)", "p", Given(SIZE, "a")),
        ("kernel[(1,)](a.numel(), *a.stride(), 3)", "q", None),
        ("kernel[(1,)](a.shape[1], a.new_empty(3), a.stride()[1])", "r", Given(STRIDE, "a")),
        ("kernel[(1,)](a.new_empty(3))", "p", None),
        ("n = out.weight.stride(0)\n    kernel[(1,)](n)", "p", Given(STRIDE, "out.weight")),
        ("other(a.stride(0))", "p", None),
    ],
)
def test_other_ways_to_hand_them_over(launch, parameter, expected):
    text = f"def kernel(p, q, r, n):\n    pass\n\n\ndef function(a, out):\n    {launch}\n"
    assert given(functions(text), ["kernel"])["kernel"].get(parameter) == expected


def test_the_other_stride_of_a_tensor_is_tried_before_that_of_another():
    source = Source(FILE)
    of_first = [
        edit.parts[0][1]
        for edit in candidates(source, "function")
        if edit.mistake.startswith("`qn` is the wrong step in `u[:, None] * qn`")
    ]
    assert of_first.index("qk") < of_first.index("pm")
    assert of_first.index("qk") < of_first.index("pk")
