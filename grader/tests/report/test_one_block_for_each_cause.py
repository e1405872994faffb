"""An error is told once: not again for each size, and not again for each function of the file."""

import pytest

from grader.course.spec import Verdict
from grader.report.terminal import _failures, alike, details_of
from grader.results.findings import Frame
from grader.results.models import ExerciseResult, LabResult
from grader.tests.helpers.result_fakes import an_item

NO_POINTS = dict.fromkeys(("points", "graded_points", "not_graded_points", "max_points"), 0.0)
FRAME = Frame(line=30, function="kernel", code="tl.arange(0, BLOCK)")


def crashed(n, frame=FRAME, cause=""):
    name = f"n={n},fp32"
    where = f"ValueError: numel ({n}) exceeds triton maximum tensor numel"
    return an_item(
        Verdict.CRASHED, id=f"f/correctness/{name}", name=name, where=where, frames=(frame,), cause=cause
    )


@pytest.mark.parametrize("cause", ["", "a block has at most 9 elements, and this one has {}"])
def test_an_error_with_the_sizes_of_its_case_is_one_group(cause):
    items = [crashed(n, cause=cause.format(n)) for n in (7, 1024, 2097152)]
    assert len(alike(items, "lab1_elementwise_add", "f.py")) == 1


def test_an_error_at_another_line_is_another_group():
    other = FRAME.model_copy(update={"line": 31})
    assert len(alike([crashed(7), crashed(7, other)], "lab1_elementwise_add", "f.py")) == 2


def test_wrong_values_with_other_numbers_are_groups_of_their_own():
    items = [
        an_item(
            Verdict.WRONG, id=f"f/correctness/{n}", name=f"n={n}", where=f"out[{n}]   yours 0   expected 1"
        )
        for n in (1, 2)
    ]
    assert len(alike(items, "lab1_elementwise_add", "f.py")) == 2


def test_a_second_function_with_the_same_error_names_the_first():
    first, second = (
        ExerciseResult(name=name, file="f.py", file_sha256=None, items=(crashed(n),))
        for name, n in (("forward", 7), ("both", 9))
    )
    lab = LabResult(folder="lab1_elementwise_add", number=1, title="", exercises=(first, second), **NO_POINTS)
    told = [line for line, _ in _failures(lab, second, second.items, "correctness", "labs")]
    assert any(line.endswith("the same error as in forward, line 30") for line in told)
    assert not any("numel" in line for line in told)
    assert any("numel" in line for line, _ in _failures(lab, first, first.items, "correctness", "labs"))


def test_a_line_of_another_file_of_the_student_is_shown_with_that_file():
    other = FRAME.model_copy(update={"function": "kernel in layer_norm.py"})
    shown = [*details_of(crashed(7, other), "lab4_production_slice", "layer_norm_linear.py")]
    assert any("labs/lab4_production_slice/layer_norm.py:30" in line for line in shown)
    assert not any("layer_norm_linear.py:30" in line for line in shown)
    assert FRAME.file("labs/x/f.py") == "labs/x/f.py"
