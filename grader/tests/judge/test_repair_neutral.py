"""Which values take away what an expression decides."""

import pytest

from grader.judge.repair.edit import Edit
from grader.judge.repair.neutral import guarded, neutral, spoiled
from grader.judge.repair.source import Source

TEXT = """def f(tile, top, base, width):
    odd = tile % 2
    at = min(tile, width - 4)
    kept = tl.where(top > base, top, base)
    first = tl.program_id(0) * tl.num_programs(0)
    return odd + kept
"""


def edit_of(old, new, mistake="is wrong"):
    at = TEXT.index(old)
    return Edit(1, 1, mistake, (((at, at + len(old)), new),))


@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        ("tile % 2", "2 % tile", {"0", "1"}),
        ("tl.where(top > base, top, base)", "tl.where(base, top, top > base)", {"(top)", "(base)"}),
        ("num_programs(0)", "num_programs(1)", {"(tl.num_programs(0) * 0 + 1)"}),
        ("tile % 2", "0", {"1"}),  # what the edit itself writes says nothing
        ("odd + kept", "kept", {"0", "1"}),
        ("top > base", "top > tile", {"((top) == (top))", "((top) != (top))"}),
    ],
)
def test_neutral_values_of_what_an_edit_changes(old, new, values):
    assert {one.part[1] for one in neutral(Source(TEXT), edit_of(old, new))} >= values
    assert new not in {one.part[1] for one in neutral(Source(TEXT), edit_of(old, new))}


def test_another_function_of_the_same_arguments_has_none():
    text = TEXT.replace("min(tile, width - 4)", "tl.minimum(tile, width - 4)")
    at = text.index("tl.minimum")
    edit = Edit(1, 1, "`tl.minimum` is the wrong function", (((at, at + len("tl.minimum")), "tl.maximum"),))
    assert [*neutral(Source(text), edit)] == []


def test_an_edit_that_takes_something_away_has_none():
    assert [*neutral(Source(TEXT), edit_of("tile % 2", "tile", "`2` does not belong there"))] == []
    around = edit_of("tile % 2", "2 % tile").avoiding()
    assert [*neutral(Source(TEXT), around)] == []


def test_an_edit_that_a_neutral_value_equals_is_named_by_what_it_decides():
    edit = edit_of("tile % 2", "2 % tile", "the operands of `tile % 2` are exchanged")
    assert edit.deciding("tile % 2").mistake == "`tile % 2` is wrong, or what it decides is wrong"
    assert edit.deciding("tile % 2").goes_around


def test_a_condition_that_an_edit_changes_fails_where_one_way_is_taken():
    text = TEXT.replace("odd = tile % 2", "odd = tile % 2 == 0")
    at = text.index("% 2") + 2
    edit = Edit(1, 2, "2 is the wrong number", (((at, at + 1), "width"),))
    (span, holds), (same, fails) = guarded(Source(text), edit)
    assert span == same
    assert text[span[0] : span[1]] == "tile % 2 == 0"
    assert (holds, fails) == ("((tile % width == 0) or [][0])", "((tile % width == 0) and [][0])")


def test_outside_of_a_condition_nothing_is_guarded():
    assert guarded(Source(TEXT), edit_of("width - 4", "width - 2")) == []


def test_each_choice_of_a_where_that_an_edit_is_in_is_spoiled_once():
    text = "row = tl.where(column % 2 == 0, step, GROUP - 1 - step)\n"
    at = text.index("GROUP")
    edit = Edit(0, 1, "`GROUP` is the wrong value", (((at, at + len("GROUP")), "height"),))
    first, second = (part[1] for part in spoiled(Source(text), edit))
    assert first == "tl.where(column % 2 == 0, ((step) * 0 - 1), height - 1 - step)"
    assert second == "tl.where(column % 2 == 0, step, ((height - 1 - step) * 0 - 1))"
    assert spoiled(Source("row = GROUP - 1\n"), Edit(0, 1, "", (((6, 11), "h"),))) == []
