"""A selection by the sizes of a case, and what is said where nothing matches."""

import pytest
from click.testing import CliRunner

from grader.cli.main import main
from grader.grading.options import RunOptions
from grader.grading.selection import is_of_a_case, matches, nothing_matches

NAMES = [
    "elementwise_add/correctness/n=7,fp32",
    "elementwise_add/correctness/n=77,fp32",
    "elementwise_add/correctness/n=7,fp16",
    "elementwise_add/generated code/compiles",
]


@pytest.mark.parametrize(
    ("keyword", "found"),
    [("n=7", [0, 2]), ("n=7,fp32", [0]), (" fp32, n=77 ", [1]), ("n=8", []), ("=", []), ("n=7,n=77", [])],
)
def test_every_part_must_be_one_of_the_items(keyword, found):
    assert is_of_a_case(keyword)
    assert [at for at, name in enumerate(NAMES) if matches(keyword, name)] == found


def test_other_selections_are_pytests():
    assert not is_of_a_case("backward and not fp16")
    assert RunOptions(keyword="backward and not fp16").pytest_arguments() == ["-k", "backward and not fp16"]
    assert RunOptions(keyword="n=7,fp32").pytest_arguments() == ["--case", "n=7,fp32"]


@pytest.mark.parametrize(
    ("keyword", "words"),
    [("n=78", "like it: n=7, n=77"), ("elementwise_ad", "like it: elementwise_add"),
     ("backward", "the functions are elementwise_add")],
)  # fmt: skip
def test_what_is_like_a_selection_that_matches_nothing_is_said(keyword, words):
    assert nothing_matches(keyword, NAMES) == f"nothing matches -k {keyword!r}; {words}"


@pytest.mark.parametrize("lab", ["1", "lab1", "lab1_elementwise_add", "lab1_elementwise_add/"])
def test_a_lab_is_named_by_its_number_or_its_folder(lab, tmp_path):
    asked = ["grade", "--lab", lab, "--from", "solutions", "--tier", "cpu", "-k", "n=0,fp32"]
    done = CliRunner().invoke(main, [*asked, "--results", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "correctness     ok   2 of 2" in done.output


@pytest.mark.parametrize("lab", ["lab9", "labs", "1x", "elementwise_add"])
def test_a_lab_that_there_is_not_is_one_line(lab, tmp_path):
    done = CliRunner().invoke(main, ["grade", "--lab", lab, "--results", str(tmp_path)])
    assert (done.exit_code, done.output) == (2, f"--lab {lab}: the labs are 1, 2, 3, 4, or capstone alone\n")
