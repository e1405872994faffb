"""What notebooks show: the same bytes for the same content, kernels by their source, figures if there."""

import sys

import IPython.display
import pytest

from grader.site.notebooks import kernels, showing


@pytest.fixture
def displayed(monkeypatch):
    """What would be displayed: Markdown as its text, raw bundles as they are."""
    seen = []
    monkeypatch.setattr(IPython.display, "display", lambda one, **_: seen.append(getattr(one, "data", one)))
    return seen


def test_a_table_shows_a_bar_as_text(displayed):
    showing.table(["a", "b", "c"], [["x|y", 1, 2.5]])
    assert displayed == ["| a | b | c |\n|---|---:|---:|\n| x\\|y | 1 | 2.5 |"]


def test_a_figure_is_the_same_bytes_again_and_says_what_is_on_it(displayed):
    for _ in range(2):
        figure, axes = showing.canvas(4, 2)
        axes.plot([1, 2], [3, 4], color=showing.BLUE)
        showing.shown(figure, "a line that rises")
    assert displayed[0] == displayed[1]
    assert displayed[0]["text/plain"] == "a line that rises"
    assert displayed[0]["image/svg+xml"].count("<svg") == 1


def test_several_axes_stand_side_by_side():
    _, axes = showing.canvas(columns=2, sharey=True)
    assert len(axes) == 2


def test_a_kernel_is_listed_by_its_source(displayed):
    lab3 = kernels.solution("lab3_autotuned_matmul/autotuned_matmul.py")
    showing.listing(lab3.matmul_kernel)
    assert displayed[0].startswith("```python\n@triton.autotune(configs=CONFIGS")
    assert "def matmul_kernel(" in displayed[0]


def test_what_a_module_defines_is_shown_with_its_decorators_and_nothing_else(displayed):
    lab3 = kernels.solution("lab3_autotuned_matmul/autotuned_matmul.py")
    softmax = kernels.solution("lab4_production_slice/softmax.py")
    showing.excerpt(softmax, "forward_op", "FusedSoftmax")
    showing.excerpt(lab3, "CONFIGS")
    operator, function, configs = displayed
    assert operator.startswith('```python\n@triton_op("course::fused_softmax"')
    assert operator.rstrip("`\n").endswith("return fused_softmax_forward(x)")
    assert function.startswith("```python\nclass FusedSoftmax(")
    assert function.rstrip("`\n").endswith("# END TODO 8")
    assert configs.startswith("```python\nCONFIGS = [\n")
    with pytest.raises(KeyError, match="no_such"):
        showing.excerpt(lab3, "no_such")


def test_a_figure_that_is_not_there_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "grader.site.figures.show", None)
    with pytest.raises(RuntimeError, match="the figure program_life is missing"):
        showing.interactive("program_life")
