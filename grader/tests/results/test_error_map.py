"""The map of wrong elements: right about where they are, of bounded size, and silent about their values."""

import jsonschema
import pytest
import torch
from pydantic import ValidationError

from grader.course.spec import Reason, Verdict
from grader.judge.comparison import Finding
from grader.results.error_map import ALL, MOST_COLUMNS, MOST_OF_A_VECTOR, MOST_ROWS, ErrorMap, map_of
from grader.results.outcome import result_of
from grader.tests.helpers.course import ROOT, solution


def finding(bad):
    return Finding("out", Reason.MISMATCH, tuple(map(int, bad.nonzero()[0])), 1.0, 2.0, bad, 3.0)


def marked(*shape, at=(...,)):
    bad = torch.zeros(shape, dtype=torch.bool)
    bad[at] = True
    return bad


def test_an_unwritten_tail_is_the_last_cells_of_every_row():
    found = map_of(finding(marked(29, 1001, at=(slice(None), slice(896, None)))))
    assert (found.shape, found.extent, found.wrong) == ([29, 1001], (29, 1001), 29 * 105)
    assert (found.first, found.box) == ([0, 896], [0, 28, 896, 1000])
    assert len(found.cells) == 29
    # 1001 columns in 32 cells: the 29th ends at column 907, and 11 of its 32 columns are wrong.
    assert set(found.cells) == {"0" * 28 + "3" + "999"}


def test_one_wrong_element_of_a_million_is_seen_and_no_cell_is_called_wrong_throughout():
    found = map_of(finding(marked(1024, 1024, at=(700, 5))))
    assert found.box == [700, 700, 5, 5]
    assert [(r, c) for r, row in enumerate(found.cells) for c, level in enumerate(row) if level != "0"] == [
        (700 // 32, 0)
    ]
    assert found.cells[21][0] == "1"
    all_but_one = ~marked(1024, 1024, at=(700, 5))
    assert map_of(finding(all_but_one)).cells[21][0] == "8"


def test_every_element_wrong_is_a_grid_of_nines_whatever_the_strides():
    assert set("".join(map_of(finding(marked(3, 7, 50).transpose(0, 2))).cells)) == {str(ALL)}


@pytest.mark.parametrize(
    ("shape", "grid"),
    [
        ((1,), (1, 1)),
        ((5, 1), (5, 1)),
        ((1_048_579,), (1, MOST_OF_A_VECTOR)),
        ((1, 40_000), (1, MOST_OF_A_VECTOR)),
        ((2, 3, 40), (6, MOST_COLUMNS)),
        ((4096, 4097), (MOST_ROWS, MOST_COLUMNS)),
        ((), (1, 1)),
    ],
)
def test_no_output_makes_the_grid_larger_than_its_bound(shape, grid):
    found = map_of(Finding("y", Reason.MISMATCH, (0,) * len(shape), 1.0, 2.0, torch.ones(shape) > 0, 3.0))
    assert (len(found.cells), {len(row) for row in found.cells}) == (grid[0], {grid[1]})
    assert len(found.model_dump_json()) < 2000


def test_the_map_holds_no_value_of_either_side():
    found = Finding("out", Reason.MISMATCH, (0,), 123.25, 456.75, torch.ones(9) > 0, 3.0)
    text = map_of(found).model_dump_json()
    assert "123" not in text
    assert "456" not in text


@pytest.mark.parametrize(
    "change",
    [{"cells": ["<b>"]}, {"cells": ["0"] * 33}, {"cells": ["0" * 129]}, {"first": [-1]}, {"more": 1}],
)
def test_a_map_out_of_bounds_is_refused_by_model_and_schema(change):
    right = map_of(finding(marked(9, at=4))).model_dump()
    schema = jsonschema.Draft202012Validator(ErrorMap.model_json_schema())
    assert ErrorMap.model_validate(right)
    assert schema.is_valid(right)
    with pytest.raises(ValidationError):
        ErrorMap.model_validate(right | change)
    assert not schema.is_valid(right | change)


WRONG = {
    "load_of_a_row_without_mask": (
        Verdict.OUT_OF_BOUNDS,
        [27, 28],
    ),  # behind any other row lies the next one, no NaN
    "masked_lanes_load_zero": (Verdict.WRONG, [0, 28]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_graded_answer_has_its_map_and_a_right_one_has_none(submissions, name):
    text = (ROOT / "solutions" / "lab2_online_softmax" / "wrong" / f"{name}.py").read_text("utf-8")
    (outcome,) = submissions.grade(2, text, "softmax_forward/rows=29,cols=1001,fp32").values()
    verdict, rows = WRONG[name]
    assert (outcome.verdict, outcome.error_map.box[:2]) == (verdict, rows)
    assert outcome.error_map.shape == [29, 1001]
    if verdict is Verdict.WRONG:  # what is read outside is said with the line that reads it
        place = outcome.where.partition("   ")[0]
        assert place == f"out[{', '.join(map(str, outcome.error_map.first))}]"
    assert result_of(next(iter(submissions.asked.values())), outcome).error_map == outcome.error_map
    (right,) = submissions.grade(2, solution(2), "softmax_forward/rows=29,cols=1001,fp32").values()
    assert (right.verdict, right.error_map) == (Verdict.PASS, None)
