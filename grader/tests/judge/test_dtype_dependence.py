"""Expressions whose value differs between dtypes: those of what a function runs, and no conversions."""

import pytest

from grader.judge.dtype_dependence import by_dtype

FILE = """
@triton.jit
def kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK)).to(tl.float32)
    tl.store(out_ptr + tl.arange(0, BLOCK), x.to(out_ptr.dtype.element_ty))


def other(x):
    return x.element_size()


def function(x):
    out = torch.empty(x.shape, dtype=x.dtype)
    block = {block}
    kernel[(1,)](x, out, BLOCK=block)
    return out
"""


@pytest.mark.parametrize(
    "block",
    [
        "16 // x.element_size()",
        "16 // x.dtype.itemsize",
        "512 if x.dtype == torch.float32 else 1024",
        "WIDTHS[x.dtype]",
        "int(torch.finfo(x.dtype).bits)",
    ],
)
def test_an_expression_of_a_dtype_is_found_with_its_line(block):
    (line,) = by_dtype(FILE.replace("{block}", block), "function")
    assert FILE.splitlines()[line - 1].strip().startswith("block =")


def test_a_dtype_of_a_tensor_or_of_a_conversion_decides_nothing():
    assert by_dtype(FILE.replace("{block}", "1024"), "function") == {}


@pytest.mark.parametrize("text", ["def function(:", "x = 1"])
def test_a_file_without_the_function_has_none(text):
    assert by_dtype(text, "function") == {}
