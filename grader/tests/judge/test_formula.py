"""Which formula a wrong output follows: of the values of the reference, and a few operations."""

import pytest
import torch

from grader.course import catalog
from grader.course.spec import Case
from grader.judge.formula.of_file import of_several_sizes, results_of
from grader.judge.formula.search import Followed, formula_of
from grader.judge.formula.terms import Term, enclosed, terms_of
from grader.judge.inputs import draw, in_dtype
from grader.tests.helpers.course import SEED

EXERCISES = {each.name: each for entry in catalog.find() for each in entry.lab.exercises}


def drawn(name, call=0):
    """Inputs in fp64 of a case with about 130 elements a row, and the terms of the exercise's reference."""
    exercise = EXERCISES[name]
    case = min(
        (case for case in exercise.cases if case.dtype == "fp32" and not case.needs_gpu),
        key=lambda case: abs(sum(size for size in case.params.values() if isinstance(size, int)) - 130),
    )
    inputs = in_dtype(draw(exercise, case, SEED, "cpu", call), torch.float64)
    return inputs, terms_of(exercise.reference, inputs)


def largest(x):
    return x.amax(1, keepdim=True)


def exponentials(x):
    return (x - largest(x)).exp()


def of_another_sum(dy, y):
    return y * (dy - dy.sum(1, keepdim=True))


def of_a_mean(dy, y):
    return y * (dy - (y * dy).mean(1, keepdim=True))


def not_centred(x, weight, bias):
    return x * (x.var(1, keepdim=True, correction=0) + 1e-5).rsqrt() * weight + bias


def without_weight(x, weight):
    assert weight.dim() == 1
    return x * ((x * x).mean(1, keepdim=True) + 1e-6).rsqrt()


def not_shifted_above(x):
    return x.exp() / exponentials(x).sum(1, keepdim=True)


FOUND = [
    ("elementwise_add", lambda x, y: x - y, "x - y"),
    ("elementwise_add", lambda x, y: 2 * x + y, "(x + y) + x"),
    ("softmax_forward", exponentials, "exp(x - max(x, axis=1))"),
    ("softmax_forward", not_shifted_above, "exp(x) / sum(exp(x - max(x, axis=1)), axis=1)"),
    ("softmax_backward", lambda dy, y: y - dy, "y - dy"),
    ("softmax_backward", of_another_sum, "(dy - sum(dy, axis=1)) * y"),
    ("softmax_backward", of_a_mean, "(dy - mean(y * dy, axis=1)) * y"),
    ("layer_norm_forward", not_centred, "((rsqrt(var(x, axis=1) + 1e-05) * weight) * x) + bias"),
    ("rms_norm_forward", without_weight, "x * rsqrt(mean(x * x, axis=1) + 1e-06)"),
    ("rms_norm_backward", lambda dy, x, **_: (dy * x).sum(0), "sum(dy * x, axis=0)"),
    ("layer_norm_backward", lambda dy, x, **_: (dy * x * x).sum(0), "sum(dy * x * x, axis=0)"),
    ("matmul", lambda a, b: 1.5 * (a @ b), "1.5 * (a @ b)"),
    ("matmul_bias_relu", lambda a, b, bias: (a @ b).relu() + bias, "bias + max(a @ b, 0)"),
]


@pytest.mark.parametrize(("name", "wrong", "text"), FOUND, ids=[text for *_, text in FOUND])
def test_a_wrong_formula_is_found_and_holds_for_other_inputs(name, wrong, text):
    inputs, terms = drawn(name)
    got = wrong(**inputs).float().double()  # with the rounding of a right kernel
    found = formula_of(terms, got)
    assert found
    assert found.text == text
    others, other_terms = drawn(name, call=1)
    assert [term.text for term in other_terms] == [term.text for term in terms]
    expected = wrong(**others)
    assert torch.allclose(found.of(other_terms, expected.shape), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x.sin() * 3.1,
        torch.rand_like,
        lambda x: torch.full_like(x, 0.5),
        lambda x: torch.full_like(x, torch.nan),
        lambda x: torch.where(torch.arange(x.shape[1]) < 100, x.softmax(1), 0.0),
    ],
    ids=["another function", "noise", "constant", "nan", "one corner"],
)
def test_where_no_formula_holds_everywhere_none_is_named(wrong):
    inputs, terms = drawn("softmax_forward")
    assert formula_of(terms, wrong(**inputs)) is None


def test_too_few_elements_follow_any_formula():
    x = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.float64)
    assert formula_of([Term("x", x)], x * x) is None


def test_a_value_that_is_changed_in_place_keeps_its_formula():
    inputs, terms = drawn("rms_norm_forward")
    x = inputs["x"]
    values = {term.text: term.value for term in terms}
    assert torch.allclose(values["mean(x * x, axis=1)"], (x * x).mean(1, keepdim=True))
    assert torch.allclose(values["mean(x * x, axis=1) + 1e-06"], (x * x).mean(1, keepdim=True) + 1e-6)


@pytest.mark.parametrize(
    ("text", "beside"),
    [("x", "x"), ("x + y", "(x + y)"), ("max(x, axis=1)", "max(x, axis=1)"), ("-x", "(-x)")],
)
def test_only_a_formula_with_an_operator_outside_gets_parentheses(text, beside):
    assert enclosed(text) == beside


def of_size(cols, wrong, name="softmax_forward"):
    """Terms and output of a wrong function for rows of a length."""
    exercise = EXERCISES[name]
    (case,) = [
        case
        for case in exercise.cases
        if case.dtype == "fp32"
        and case.params.get("cols") == cols
        and case.name == f"rows={case.params['rows']},cols={cols},fp32"
    ]
    inputs = in_dtype(draw(exercise, case, SEED, "cpu", 0), torch.float64)
    return Followed(terms_of(exercise.reference, inputs), wrong(**inputs).float().double())


def test_a_formula_that_holds_in_one_size_only_is_no_formula():
    def by_blocks(x):  # as long as a row is one block, what it is divided by is 1
        return exponentials(x) / (1 + x.shape[1] // 1000 * x[:, :1].abs())

    one, other = of_size(127, by_blocks), of_size(1001, by_blocks)
    assert formula_of(*one)
    assert formula_of(*one, others=[other]) is None


def test_a_mean_over_a_sum_is_only_a_number():
    one = of_size(127, lambda x: exponentials(x) / x.shape[1])
    found = formula_of(*one)
    assert found
    assert found.text == "exp(x - max(x, axis=1)) / 127"


def test_the_largest_of_the_cases_is_looked_at():
    cases = [Case({"rows": 4, "cols": cols}) for cols in (129, 127, 200, 1001, 300, 200_000)]
    halves = [Case({"rows": 4, "cols": 16385}, dtype="fp16")]
    twice = [Case({"rows": 4, "cols": 129, "values": "large"})]
    picked = [case.params["cols"] for case in of_several_sizes([*cases, *halves, *twice])]
    assert picked == [129, 1001, 300]
    assert of_several_sizes(halves) == []


@pytest.mark.parametrize(
    ("number", "params", "most"),
    [(3, {"m": 65, "n": 40, "k": 129}, 65 * 40), (2, {"rows": 7, "cols": 20011}, 7 * 20011)],
)
def test_a_case_is_chosen_by_the_size_of_its_results(number, params, most):
    exercise = next(entry for entry in catalog.find() if entry.number == number).lab.exercises[0]
    assert results_of(exercise, Case(params)) == most


def test_a_formula_that_holds_in_every_size_is_named():
    one, other = of_size(127, exponentials), of_size(1001, exponentials)
    found = formula_of(*one, others=[other])
    assert found
    assert found.text == "exp(x - max(x, axis=1))"
    assert formula_of(*one, others=[Followed(other.terms[:1], other.got)]) is None
