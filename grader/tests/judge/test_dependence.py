"""On which inputs a wrong element depends: said by experiment, and only where it is not as it should be."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from grader.course import catalog
from grader.judge import dependence
from grader.judge.trial import Called, Trial
from grader.tests.helpers.course import SEED
from grader.worker.witness.record import NO_TENSOR, Influence, Reach, Witnessed

EXERCISES = {each.name: each for entry in catalog.find() for each in entry.lab.exercises}


@pytest.fixture
def say(monkeypatch):
    """Says on what the outputs of a wrong function of torch depend, in the case nearest to some sizes."""

    def call(trial, worker, witnessed=False, followed=None):
        worker.calls += 1
        if followed:
            worker.witnessed = Witnessed(influence=worker.influence)
        if witnessed:
            first = min(buffer.tensor.offset for buffer in trial._inputs)
            seen = ((first, 17, False), (first, 12, False), (first + 1, 5, False), (first, 3, True))
            reaches = [Reach(NO_TENSOR, offset, line, writes, 0, 1) for offset, line, writes in seen]
            worker.witnessed = Witnessed(reaches=tuple(reaches))
        outputs = worker.function(**{k: v for k, v in trial.values.items() if isinstance(v, torch.Tensor)})
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return Called([*outputs], [torch.zeros_like(one, dtype=torch.bool) for one in outputs], True)

    monkeypatch.setattr(Trial, "call", call)

    def say_it(name, function, sizes, dtype="fp32", label="", influence=None):
        cases = [one for one in EXERCISES[name].cases if one.dtype == dtype and not one.layouts]
        cases.sort(key=lambda one: sum(abs(one.params[size] - n) for size, n in sizes.items()))
        worker = SimpleNamespace(session=SimpleNamespace(seed=SEED), function=function, calls=0)
        worker.influence = influence
        words = dependence.dependence(worker, EXERCISES[name], [replace(cases[0], label=label)])
        confirming = 6 * len(
            dependence.STRONGER
        )  # of what is said first, and of others where that is refuted
        assert worker.calls <= dependence.MOST_CALLS + dependence.MOST_CASES + confirming
        return words

    return say_it


def bias_of_the_first_tile(a, b, bias):
    return (a @ b + bias[torch.arange(b.shape[1]) % 32]).relu()


def softmax_of_the_sum_of_all_rows(x):
    shifted = (x - x.amax(1, keepdim=True)).exp()
    return shifted / shifted.sum()


def gradients_without_the_last_row(dy, x, weight):
    x = x.detach().requires_grad_()
    torch.layer_norm(x, x.shape[1:], weight).backward(dy)
    return x.grad, (dy * torch.layer_norm(x, x.shape[1:]))[:-1].sum(0).detach(), dy.sum(0)


SAID = {
    "one element of an input for all": (
        "elementwise_add",
        lambda x, y: x + y[0],
        {"n": 129},
        "out[1] depends on y[0], and should depend on y[1]",
    ),
    "the neighbour's element": (
        "elementwise_add",
        lambda x, y: x.roll(1) + y,
        {"n": 129},
        "out[0] depends on x[128], and should depend on x[0]; `x` is loaded in lines 12 and 17: "
        "follow what is made of it from there",
    ),
    "an input that is not used": (
        "elementwise_add",
        lambda x, y: x + x + 0 * y,
        {"n": 129},
        "out[0] does not depend on `y`, and should depend on y[0]",
    ),
    "a column too many": (
        "matmul",
        lambda a, b: a @ b + (a @ b).roll(64, 1),
        {"m": 128, "n": 128, "k": 128},
        "out[0, 0] depends on columns 0, 64 of `b`, and should depend on column 0 of `b` alone",
    ),
    "the bias of another tile": (
        "matmul_bias_relu",
        bias_of_the_first_tile,
        {"m": 128, "n": 128, "k": 128},
        "depends on bias[",
    ),
    "a sum over all rows": (
        "softmax_forward",
        softmax_of_the_sum_of_all_rows,
        {"rows": 3, "cols": 130},
        "of `x`, and should depend on row 0 of `x` alone",
    ),
    "a last row that is in no group": (
        "layer_norm_backward",
        gradients_without_the_last_row,
        {"rows": 37, "cols": 3},
        "depends on rows 0 to 35 of `dy`, and should depend on rows 0 to 36 of `dy`",
    ),
    "a bias that each of four programs adds, behind a ReLU": (
        "matmul_bias_relu",
        lambda a, b, bias: (a @ b + 4 * bias).relu(),
        {"m": 33, "n": 65, "k": 17},
        "out changes with `a` and `b` as it should, and 4 times as much as it should with `bias`",
    ),
    "an input with a wrong factor": (
        "layer_norm_forward",
        lambda x, weight, bias: torch.layer_norm(x, x.shape[1:], weight, 2 * bias),
        {"rows": 3, "cols": 130},
        "out changes with `x` and `weight` as it should, and 2 times as much as it should with `bias`",
    ),
}


@pytest.mark.parametrize("what", SAID)
def test_what_a_wrong_element_depends_on_is_said(say, what):
    name, function, sizes, words = SAID[what]
    assert words in say(name, function, sizes)


def test_nothing_is_said_where_each_element_depends_on_what_it_should(say):
    assert say("elementwise_add", lambda x, y: 2 * x + 2 * y, {"n": 129}) == ""
    assert say("softmax_forward", lambda x: torch.softmax(x, 1) ** 2, {"rows": 3, "cols": 130}) == ""


def test_nothing_is_said_of_a_right_function_or_of_rounded_results(say):
    assert say("elementwise_add", lambda x, y: x + y, {"n": 129}) == ""
    assert say("elementwise_add", lambda x, y: x + y[0], {"n": 129}, dtype="fp16") == ""


def test_nothing_is_said_of_a_hidden_case(say):
    assert say("elementwise_add", lambda x, y: x + y[0], {"n": 129}, label="hidden 1") == ""


def test_a_result_that_a_maximum_hides_is_no_evidence(say):
    """The reference is 0 in one place and the wrong result in another: neither shows what it depends on."""
    decided_by_the_product = lambda a, b, bias: torch.where(a @ b > 0, a @ b + bias, 0.0)  # noqa: E731
    assert say("matmul_bias_relu", decided_by_the_product, {"m": 128, "n": 128, "k": 128}) == ""


def test_a_relu_before_the_bias_is_no_product_of_a_few_columns(say):
    too_early = lambda a, b, bias: (a @ b).relu() + bias  # noqa: E731
    assert "column" not in say("matmul_bias_relu", too_early, {"m": 128, "n": 128, "k": 128})


def test_a_part_of_a_sum_that_is_cut_off_is_no_part_that_does_not_count(say):
    """Parts of k below 0 are cut off before they are added up: with other values they count."""

    def cut_off(a, b, bias):
        parts = [(a[:, at : at + 16] @ b[at : at + 16]) for at in range(0, a.shape[1], 16)]
        return torch.stack([parts[0] + bias, *parts[1:]]).relu().sum(0)

    for k in (33, 40, 128):
        assert "column" not in say("matmul_bias_relu", cut_off, {"m": 65, "n": 40, "k": k})


def test_a_load_that_reaches_no_needed_element_has_a_wrong_address_or_mask():
    part = dependence.Part("bias", 0, 64, 80)
    words = dependence._Words(
        dependence.IN_PLACE_OF_ANOTHER, "out[0, 64] depends on bias[0..15]", [(part, 0)]
    )
    near, far = (Reach(NO_TENSOR, 0, 84, False, 0, last) for last in (63, 127))
    said = dependence._never_reached(words, (128,), [near], 2)
    assert "line 84 loads bias[0..63] and nothing else" in said
    assert dependence._never_reached(words, (128,), [near], 1) == ""  # its second load may be missing
    assert dependence._never_reached(words, (128,), [far], 2) == ""  # what is made of it may be wrong
    on_nothing = dependence._never_reached(words._replace(rank=1), (128,), [near], 2)
    assert on_nothing.endswith("its mask, or its address, leaves out the rest")


def test_the_way_of_a_wrong_element_is_said_in_place_of_where_its_input_is_loaded(say):
    asked = "elementwise_add", lambda x, y: x.roll(1) + y, {"n": 129}
    joined = say(*asked, influence=Influence(19))
    assert joined == "out[0] depends on x[128], and should depend on x[0]; line 19 uses x[128] for it"
    stored = say(*asked, influence=Influence(19, loaded=17, stored=12))
    assert "; line 17 loads what line 12 has stored of x[128]: these two lines do not agree" in stored
