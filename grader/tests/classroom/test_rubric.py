"""Points that a person gives: every line is checked, and none is lost when a class is graded again."""

import pytest

from grader.classroom.gradebook.rubric import Given, RubricError, merged, read, write

HEAD = "student,criterion,points,of,unit,note\n"


def read_text(tmp_path, text):
    file = tmp_path / "rubric.csv"
    file.write_text(text, "utf-8")
    return read(file, {"ada", "bob"}, ["gpu-programming", "lab1_elementwise_add"])


def test_a_line_without_a_unit_is_of_the_capstone(tmp_path):
    (given,) = read_text(tmp_path, "\ufeffStudent,Criterion,Points,Of\nada,clarity,7.5,10\n\n")
    assert given == Given("ada", "clarity", 7.5, 10.0, "gpu-programming")


@pytest.mark.parametrize(
    ("lines", "number", "word"),
    [
        ("ada,clarity,7,10,,\nzoe,clarity,7,10,,\n", 3, "no student zoe"),
        ("ada,clarity,11,10,,\n", 2, "11 points of 10"),
        ("ada,clarity,-1,10,,\n", 2, "points is -1"),
        ("ada,clarity,nan,10,,\n", 2, "points is nan"),
        ("ada,clarity,7,10,,\nbob,clarity,7,10,,\nada,clarity,8,10,,\n", 4, "in line 2 already"),
        ("ada,clarity,7,10,lab9,\n", 2, "lab9"),
        ("ada,,7,10,,\n", 2, "no criterion"),
        ("ada,clarity,7,10,,good, but long\n", 2, "quotes"),
    ],
)
def test_a_wrong_line_is_an_error_with_its_number(tmp_path, lines, number, word):
    with pytest.raises(RubricError) as raised:
        read_text(tmp_path, HEAD + lines)
    assert f"rubric.csv:{number}: " in str(raised.value)
    assert word in str(raised.value)


def test_columns_that_are_missing_or_unknown_are_named(tmp_path):
    with pytest.raises(RubricError, match=r"rubric.csv:1: .*missing: of"):
        read_text(tmp_path, "student,criterion,points\n")
    with pytest.raises(RubricError, match="unknown: grade"):
        read_text(tmp_path, "student,criterion,points,of,grade\n")


def test_a_criterion_has_one_maximum(tmp_path):
    with pytest.raises(RubricError, match="of 10 and of 20"):
        read_text(tmp_path, HEAD + "ada,clarity,7,10,,\nbob,clarity,7,20,,\n")


def test_new_lines_take_the_place_of_their_like_and_the_others_stay(tmp_path):
    old = read_text(tmp_path, HEAD + 'ada,clarity,7,10,,"first, try"\nbob,clarity,5,10,,\n')
    new = read_text(tmp_path, HEAD + "ada,clarity,9,10,,\nada,figures,3,5,,\n")
    together = merged(tmp_path / "rubric.csv", old, new)
    assert [(one.student, one.criterion, one.points) for one in together] == [
        ("ada", "clarity", 9.0),
        ("ada", "figures", 3.0),
        ("bob", "clarity", 5.0),
    ]
    write(tmp_path / "kept.csv", together)
    assert read(tmp_path / "kept.csv", {"ada", "bob"}, ["gpu-programming"]) == together
