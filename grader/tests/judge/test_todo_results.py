"""A finished TODO is checked alone: what it gives is told, and nothing of one that is open or fails."""

import pytest

from grader.course.spec import Verdict
from grader.tests.helpers.course import ROOT

SKELETONS = ROOT / "grader" / "course" / "skeletons" / "labs"
LAB_1 = (SKELETONS / "lab1_elementwise_add" / "elementwise_add.py").read_text()
LAB_3 = (SKELETONS / "lab3_autotuned_matmul" / "autotuned_matmul.py").read_text()
OFFSETS = """
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = {offs}
    mask = {mask}
"""
OF_LAB_1 = {
    "right": ("pid * BLOCK + tl.arange(0, BLOCK)", "offs < n",
              "the offsets `offs` and the mask `mask` are right"),
    "one lane too many": ("pid * BLOCK + tl.arange(0, BLOCK)", "offs <= n",
                          "program 2: the mask `mask` is T T T F and should be T T F F"),
    "every program the first block": (
        "pid * 0 + tl.arange(0, BLOCK)", "offs < n",
        "program 1: the offsets `offs` are 0 1 2 3 and should be 4 5 6 7; "
        "program 2: the mask `mask` is T T T T and should be T T F F"),
    "a scalar": ("pid * BLOCK", "offs < n",
                 "program 0: the offsets `offs` are 0 0 0 0 and should be 0 1 2 3; "
                 "program 2: the mask `mask` is T T T T and should be T T F F"),
}  # fmt: skip
PLACE = """
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    within = tile % (GROUP_M * tiles_n)
    height = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)
    return {row}, {col}
"""
ROW, COL = "(group * GROUP_M + within % height) * BLOCK_M", "(within // height) * BLOCK_N"
OF_LAB_3 = {
    "right": (ROW, COL, "each of the 30 tiles has one number"),
    "the last group too high": (
        ROW.replace("height", "GROUP_M"), COL.replace("height", "GROUP_M"),
        "tiles (3, 4), (3, 5), (4, 4) and 1 more have no number; "
        "number 20 leads to row 80 and column 0, where no tile begins"),
    "numbers of tiles": (
        ROW.replace(" * BLOCK_M", ""), COL, "number 1 leads to row 1 and column 0, where no tile begins"),
    "one row for all": (
        "group * GROUP_M * BLOCK_M", COL, "have several"),
}  # fmt: skip


def with_lines(text, number, lines):
    """The text in which lines stand in place of the placeholder of a TODO."""
    begin = text.index(f"# BEGIN TODO {number}:")
    at = text.index("\n", begin)
    end = text.rindex("\n", 0, text.index(f"# END TODO {number}"))
    return text[:at] + lines.rstrip() + text[end:]


def told(submissions, number, text, case):
    (outcome,) = submissions.grade(number, text, case).values()
    assert outcome.verdict is Verdict.NOT_STARTED
    return outcome.where


@pytest.mark.parametrize("mistake", OF_LAB_1)
def test_offsets_and_mask_are_checked_alone(submissions, mistake):
    offs, mask, words = OF_LAB_1[mistake]
    text = with_lines(LAB_1, 1, OFFSETS.format(offs=offs, mask=mask))
    where = told(submissions, 1, text, "elementwise_add/n=1009,fp32")
    assert where == f"TODO 1, alone (n = 10, BLOCK = 4): {words}"


@pytest.mark.parametrize("mistake", OF_LAB_3)
def test_the_order_of_tiles_is_checked_alone(submissions, mistake):
    row, col, words = OF_LAB_3[mistake]
    text = with_lines(LAB_3, 2, PLACE.format(row=row, col=col))
    where = told(submissions, 3, text, "matmul/m=128,n=128,k=128,fp32")
    assert where.startswith("TODO 2, alone (5 x 6 tiles of 16 x 16, GROUP_M = 3): ")
    assert words in where


@pytest.mark.parametrize(
    ("number", "lines"),
    [(2, "    x = tl.load(x_ptr)\n"), (1, "\n    offs = tl.arange(0, BLOCK) + missing\n")],
    ids=["another TODO", "it does not run"],
)
def test_what_cannot_be_checked_alone_is_not_told(submissions, number, lines):
    text = with_lines(LAB_1, number, "\n" + lines.lstrip("\n"))
    assert told(submissions, 1, text, "elementwise_add/n=1009,fp32") == ""


def test_of_a_skeleton_nothing_is_told(submissions):
    assert told(submissions, 1, LAB_1, "elementwise_add/n=1009,fp32") == ""
