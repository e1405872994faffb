"""Which statements are left out, after what the tries of their edits have shown."""

import torch

from grader.judge.repair.edit import Edit
from grader.judge.repair.relevance import ENOUGH, Relevance, Touched, touched
from grader.judge.repair.source import Source

TEXT = """
def f(a, b):
    c = a + b
    d = c * c
    return d
"""
SOURCE = Source(TEXT)
BEFORE = [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 5.0])]
ALL = [None, None]


def edits_of(*codes):
    places = [(TEXT.index(code), TEXT.index(code) + len(code)) for code in codes]
    return Edit(1, 3, "`a` is wrong", tuple((place, "b") for place in places))


def after(edit, *shown):
    relevance = Relevance(SOURCE)
    for one in shown:
        relevance.note(edit, one)
    return relevance


def test_a_statement_whose_edits_change_no_wrong_output_is_left_out():
    first, second = edits_of("a + b"), edits_of("c * c")
    relevance = after(first, *[Touched(wrong=False)] * ENOUGH)
    assert relevance.is_useless(first)
    assert not relevance.is_useless(second)
    assert not relevance.is_useless(edits_of("a + b", "c * c"))
    assert not after(first, *[Touched(wrong=False)] * (ENOUGH - 1)).is_useless(first)


def test_a_statement_on_which_a_right_output_depends_is_left_out():
    edit = edits_of("a + b")
    assert after(edit, *[Touched(True, True)] * ENOUGH).is_useless(edit)


def test_one_try_with_another_answer_keeps_a_statement():
    edit = edits_of("a + b")
    idle = [Touched(wrong=False)] * ENOUGH
    assert not after(edit, Touched(wrong=True), *idle).is_useless(edit)
    assert not after(edit, Touched(True, False), *[Touched(True, True)] * ENOUGH).is_useless(edit)
    assert not after(edit, *[Touched()] * 5).is_useless(edit)


def test_an_edit_of_two_statements_says_nothing_of_either():
    edit = edits_of("a + b", "c * c")
    relevance = after(edit, *[Touched(wrong=False)] * ENOUGH)
    assert not relevance.is_useless(edits_of("a + b"))
    assert relevance.is_new(edit)


def test_what_a_try_has_touched_is_told_for_wrong_and_right_outputs():
    first, second = BEFORE
    assert touched(BEFORE, [False, True], [first, second], ALL) == Touched(False, False)
    assert touched(BEFORE, [False, True], [first + 1, second], ALL) == Touched(True, False)
    assert touched(BEFORE, [False, True], [first, -second], ALL) == Touched(False, True)
    assert touched(BEFORE, [False, True], [first, second * 1.0001], ALL) == Touched(False, False)
    assert touched(BEFORE, [False, False], [first, second + 1], ALL) == Touched(True, None)
    assert touched(BEFORE, [False, True], [first, second * torch.nan], ALL) == Touched(False, True)


def test_nothing_is_told_of_what_is_not_finite_or_not_written():
    first, second = BEFORE
    lost = [first * torch.nan, second]
    assert touched(lost, [False, True], [first, -second], ALL) == Touched()
    masks = [torch.zeros(3, dtype=torch.bool), torch.tensor([True, False])]
    changed = torch.tensor([4.0, 9.0])
    assert touched(BEFORE, [False, True], [first + 1, changed], masks) == Touched(None, False)
