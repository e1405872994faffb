"""What the READMEs promise is called: returned tensors, layouts of dy, rows beyond 2^31 elements."""

from pathlib import Path

import pytest

from grader.course import catalog
from grader.course.spec import FAR_STRIDE, Reason, Verdict
from grader.course.symptoms import Symptom
from grader.judge.returned import ELSEWHERE
from grader.tests.helpers.broken_files import BrokenFile, Grading

SOLUTIONS = {
    1: "lab1_elementwise_add/elementwise_add.py",
    2: "lab2_online_softmax/online_softmax.py",
    3: "lab3_autotuned_matmul/autotuned_matmul.py",
}
PLAIN_ADD, NEW_ADD = "elementwise_add/n=129,fp16", "elementwise_add/n=1009,no out,fp16"
RETURN = "    return out\n"
FAR_SOFTMAX = "softmax_backward/rows=3,cols=257,dy rows far apart,y rows far apart,out rows far apart,fp16"
FAR_PRODUCT = "matmul/m=3,n=70,k=150,a rows far apart,out rows far apart,fp16"
DY = [f"softmax/rows=5,cols=129,dy {kind},fp32" for kind in ("expanded", "transposed", "padded 9")]


def solved(number, *pairs):
    """The solution of a lab with some lines replaced, each of which it has."""
    text = Path("solutions", SOLUTIONS[number]).read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def graded(submissions, number, text, *cases):
    """The outcomes of some cases, in their order."""
    found = submissions.grade(number, text, *cases)
    assert len(found) == len(cases)
    return [*found.values()]


@pytest.mark.parametrize(
    "line",
    [RETURN, "    return out.view(-1)\n", "    return out[:]\n", "    result = out\n    return result\n"],
)
def test_a_view_of_the_whole_output_is_the_output(submissions, line):
    for outcome in graded(submissions, 1, solved(1, (RETURN, line)), PLAIN_ADD, NEW_ADD):
        assert outcome.verdict is Verdict.PASS


def test_an_empty_output_is_returned_like_any_other(submissions):
    """Another empty tensor has the same elements, and is not the one that was passed."""
    text = solved(1, (RETURN, "    return out if n else torch.empty_like(x)\n"))
    other, empty = graded(submissions, 1, text, PLAIN_ADD, "elementwise_add/n=0,fp32")
    assert (empty.verdict, empty.reason) == (Verdict.WRONG, Reason.RETURNED)
    assert other.verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("line", "symptom"),
    [
        ("    pass\n", Symptom.RETURNS_NOTHING),
        ("    return x\n", Symptom.RETURNS_ANOTHER),
        ("    return out, x\n", Symptom.RETURNS_ANOTHER),
        ("    return (out,)\n", Symptom.RETURNS_ANOTHER),
        ("    return [out]\n", Symptom.RETURNS_ANOTHER),
        ("    return out.reshape(1, -1)\n", Symptom.RETURNS_ANOTHER),
        ("    return out.clone()\n", Symptom.RETURNS_ANOTHER),
        ("    return out.data_ptr()\n", Symptom.RETURNS_ANOTHER),
    ],
)
def test_something_else_than_the_output_is_not_accepted(submissions, line, symptom):
    (outcome,) = graded(submissions, 1, solved(1, (RETURN, line)), PLAIN_ADD)
    assert (outcome.verdict, outcome.reason) == (Verdict.WRONG, Reason.RETURNED)
    assert outcome.symptom is symptom
    assert outcome.frames


def test_a_return_without_a_value_is_shown_with_its_line(submissions):
    text = solved(1, (RETURN, "    if n:\n        return\n    return out\n"))
    (outcome,) = graded(submissions, 1, text, PLAIN_ADD)
    assert outcome.symptom is Symptom.RETURNS_NOTHING
    assert [one.code for one in outcome.frames] == ["return"]
    assert outcome.cause == f"line {outcome.frames[0].line}: this `return` gives no result"


def test_the_line_of_the_last_return_is_shown(submissions):
    text = solved(1, (RETURN, "    return x\n"))
    (outcome,) = graded(submissions, 1, text, PLAIN_ADD)
    assert text.splitlines()[outcome.frames[0].line - 1] == "    return x"


def test_the_line_that_returns_another_tensor_is_shown(submissions):
    """Of several returns the last one may be right."""
    early = "    n = x.numel()\n    if n == 0:\n        return torch.empty_like(x)\n"
    text = solved(1, ("    n = x.numel()\n", early))
    (outcome,) = graded(submissions, 1, text, "elementwise_add/n=0,fp32")
    assert outcome.label == "WRONG/RETURNED"
    assert text.splitlines()[outcome.frames[0].line - 1] == "        return torch.empty_like(x)"


@pytest.mark.parametrize(
    ("allocated", "said"),
    [
        ("torch.empty_like(x, dtype=torch.float32)", "is fp32, and not fp16 as the inputs are"),
        ("torch.empty(x.numel() + 1, dtype=x.dtype)", "has the shape (1010,), and not (1009,)"),
        ("torch.empty(2 * x.numel(), dtype=x.dtype)[::2]", "has gaps, as a slice has (its strides are (2,))"),
    ],
)
def test_a_new_tensor_of_another_kind_is_not_accepted(submissions, allocated, said):
    text = solved(1, ("torch.empty_like(x)", allocated))
    passed, outcome = graded(submissions, 1, text, PLAIN_ADD, NEW_ADD)
    assert passed.verdict is Verdict.PASS
    assert (outcome.label, outcome.symptom) == ("WRONG/RETURNED", Symptom.RETURNED_KIND)
    assert said in outcome.cause


def test_a_wrong_value_is_named_before_what_is_returned(submissions):
    text = solved(1, ("x + y", "x - y"), (RETURN, "    return x\n"))
    (outcome,) = graded(submissions, 1, text, PLAIN_ADD)
    assert outcome.label == "WRONG/MISMATCH"


@pytest.mark.parametrize("new", ["torch.empty_like(x)", "torch.zeros_like(out)"])
def test_an_output_left_alone_for_a_tensor_of_its_own_is_said_to_be(submissions, new):
    line = "    n = x.numel()\n"
    (outcome,) = graded(submissions, 1, solved(1, (line, f"    out = {new}\n{line}")), PLAIN_ADD)
    assert outcome.label == "WRONG/UNWRITTEN"
    line = outcome.frames[0].line
    said = f"line {line}: `{new}` is returned in place of `out`, to which nothing was written"
    assert outcome.cause == outcome.plain_cause == said
    assert outcome.frames[0].code == f"out = {new}"


def test_a_view_that_takes_the_name_of_the_output_is_named_with_its_line(submissions):
    swap = "    x, out = y, out[:-1]\n"
    (outcome,) = graded(submissions, 1, solved(1, (RETURN, swap + RETURN)), PLAIN_ADD)
    assert outcome.label == "WRONG/RETURNED"
    assert outcome.cause == f"line {outcome.frames[0].line}: `out[:-1]` is returned in place of `out`"
    assert outcome.frames[0].code == swap.strip()


def test_an_input_that_is_returned_is_named_with_its_line(submissions):
    early = "    if n == 0:\n        return x\n"
    line = "    n = x.numel()\n"
    text = solved(1, (line, line + early))
    other, empty = graded(submissions, 1, text, PLAIN_ADD, "elementwise_add/n=0,fp32")
    assert other.verdict is Verdict.PASS
    assert empty.label == "WRONG/RETURNED"
    assert empty.frames[0].code == "return x"
    assert empty.cause == f"line {empty.frames[0].line}: `x` is an input, and is returned in place of `out`"


def test_an_input_that_is_taken_as_the_result_is_named_with_its_line(submissions):
    text = solved(1, ("out = torch.empty_like(x)", "out = y"))
    (outcome,) = graded(submissions, 1, text, NEW_ADD)
    assert (outcome.verdict, outcome.frames[0].code) == (Verdict.MUTATED_INPUT, "out = y")
    assert outcome.cause.endswith("where no `out` is passed, the result is written over the input `y`")


def test_of_two_other_tensors_that_may_be_returned_none_is_named(submissions):
    other = "    if n > 5:\n        out = torch.empty_like(x)\n    else:\n        out = torch.zeros_like(x)\n"
    line = "    n = x.numel()\n"
    (outcome,) = graded(submissions, 1, solved(1, (line, f"{line}{other}")), PLAIN_ADD)
    assert outcome.cause == ELSEWHERE
    assert outcome.frames[0].code == "return out"


def test_the_line_that_makes_a_new_tensor_of_another_kind_is_named_through_a_helper(submissions):
    made = "torch.empty(2 * x.numel(), dtype=x.dtype)[::2]"
    helper = f"def fresh(x):\n    return {made}\n\n\ndef elementwise_add("
    text = solved(1, ("torch.empty_like(x)", "fresh(x)"), ("def elementwise_add(", helper))
    (outcome,) = graded(submissions, 1, text, NEW_ADD)
    assert outcome.frames[0].code == f"return {made}"
    assert outcome.cause.startswith(f"line {outcome.frames[0].line}: `{made}`, which is returned ")


def test_a_call_that_gives_contiguous_tensors_alone_is_not_named_as_the_one_that_makes_gaps(submissions):
    whole, gaps = "torch.empty(x.shape, dtype=x.dtype)", "torch.empty(2 * x.numel(), dtype=x.dtype)[::2]"
    text = solved(1, ("torch.empty_like(x)", f"{whole} if x.numel() < 9 else {gaps}"))
    (outcome,) = graded(submissions, 1, text, NEW_ADD)
    assert f"`{gaps}`, which is returned" in outcome.cause


def test_a_part_left_unwritten_is_not_blamed_on_what_is_returned(submissions):
    (outcome,) = graded(submissions, 1, solved(1, ("mask=mask)", "mask=mask & (offs > 3))")), PLAIN_ADD)
    assert outcome.reason is Reason.UNWRITTEN
    assert not outcome.plain_cause


def test_a_dy_that_is_taken_as_it_comes_is_named_as_such(submissions):
    text = solved(2, ("softmax_backward(dy.contiguous(), y)", "softmax_backward(dy, y)"))
    expanded, transposed, padded = graded(submissions, 2, text, *DY)
    assert padded.verdict is Verdict.PASS
    assert expanded.symptom is transposed.symptom is Symptom.DY_LAYOUT
    assert expanded.hint == transposed.hint == 7


def test_a_gradient_that_is_wrong_in_every_layout_is_not_blamed_on_the_layout(submissions):
    text = solved(2, ("(dy - dot)", "(dy + dot)"))
    for outcome in graded(submissions, 2, text, *DY[1:]):
        assert outcome.verdict is Verdict.WRONG
        assert outcome.symptom is not Symptom.DY_LAYOUT


@pytest.mark.parametrize(
    ("number", "line", "case"),
    [
        (2, ("program_id(axis=0).to(tl.int64)", "program_id(axis=0)"), FAR_SOFTMAX),
        (3, ("offs_m = m.to(tl.int64) +", "offs_m = m +"), FAR_PRODUCT),
    ],
)
def test_offsets_that_wrap_beyond_2_to_the_31_elements_are_found(submissions, number, line, case):
    assert graded(submissions, number, solved(number), case)[0].verdict is Verdict.PASS
    (outcome,) = graded(submissions, number, solved(number, line), case)
    assert outcome.verdict in (Verdict.WRONG, Verdict.OUT_OF_BOUNDS)
    assert outcome.symptom is Symptom.OFFSETS_WRAP
    assert "int64" in outcome.plain_cause


def test_a_mistake_of_every_size_is_not_blamed_on_the_offsets(submissions):
    (outcome,) = graded(submissions, 2, solved(2, ("(dy - dot)", "(dy + dot)")), FAR_SOFTMAX)
    assert outcome.verdict is Verdict.WRONG
    assert outcome.symptom is not Symptom.OFFSETS_WRAP


def test_a_mistake_of_every_gap_between_rows_is_not_blamed_on_the_offsets(submissions):
    # The rows of dy are taken to lie close together, as they do in the plain layout.
    text = solved(2, ("dy, y, out, n_cols, dy.stride(0)", "dy, y, out, n_cols, dy.shape[1]"))
    (outcome,) = graded(submissions, 2, text, FAR_SOFTMAX)
    assert outcome.verdict in (Verdict.WRONG, Verdict.OUT_OF_BOUNDS)
    assert outcome.symptom is not Symptom.OFFSETS_WRAP


def test_every_case_with_far_rows_reaches_beyond_2_to_the_31_elements():
    cases = [
        (exercise, case)
        for entry in [*catalog.find(), *catalog.capstone()]
        for exercise in entry.lab.functions
        for case in exercise.cases
        if case.is_far
    ]
    assert cases
    for exercise, case in cases:
        assert not case.needs_gpu
        assert case.dtype == "fp16"  # in fp32 they would take twice the memory of a GPU
        for name, layout in case.layouts.items():
            assert layout.far, (exercise.name, name)
    assert 2 * FAR_STRIDE > 2**31 > FAR_STRIDE


def test_a_shift_that_becomes_the_maximum_is_found(submissions):
    text = solved(2, ("        m = m_new\n", "        m = shift\n"))
    case = "softmax_forward/rows=7,cols=20011,values=masked below,fp32"
    assert graded(submissions, 2, text, case)[0].label == "WRONG/NONFINITE"


def test_a_result_of_zeros_is_no_proof_of_which_inputs_were_used(tmp_path):
    grading = Grading(tmp_path)
    try:  # all is dropped where p is one half
        halved = BrokenFile(
            "dropout", "all dropped", "random >= p", "0.5 * random >= p", "", [], "dropout_forward"
        )
        outcome = grading.grade(halved)["cpu"]
    finally:
        grading.session.close()
    assert outcome.label == "WRONG/MISMATCH"
    assert "share" in outcome.cause
