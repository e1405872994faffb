"""The class of 33: each hand-in goes to its student with its own grade, or is told to a person."""

import pytest
from rich.console import Console

from grader.classroom import records
from grader.classroom.records import Intake, RunRecord
from grader.tests.classroom import class_of_33, fake_grader
from grader.tests.classroom.class_of_33 import FILE, HAND_INS, ROSTER, STRAYS, UNIT

pytestmark = pytest.mark.nightly  # half a minute


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("class")
    (folder / "counts").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(fake_grader.COUNT, str(folder / "counts"))
        class_of_33.make(folder)
        run = class_of_33.grade(folder, Console(quiet=True))
    return run, class_of_33.table(run)


def test_there_are_33_hand_ins():
    assert len(HAND_INS) == 33
    assert len({one.entry for one in HAND_INS}) == 33


def owners(run, one):
    """The ids under which an entry was collected."""
    found = [records.read(path, Intake) for path in run.students.glob("*/intake.json")]
    return sorted(intake.id for intake in found if one.entry in intake.sources)


@pytest.mark.parametrize("one", HAND_INS, ids=[one.entry for one in HAND_INS])
def test_a_hand_in_goes_to_its_student_and_gets_its_own_grade(graded, one):
    run, rows = graded
    on_roster = {line[0] for line in ROSTER}
    names = owners(run, one)
    assert [name for name in names if name in on_roster] == sorted(one.students)
    assert len(names) == max(1, len(one.students))
    for name in names:
        row = rows[name]
        assert row["elementwise add: state"] == one.state
        assert one.look in row["needs a look"]
        counts = one.state == "GRADED" and "more than once" not in one.look
        if counts:
            own = records.read(run.student(name).intake, Intake).graded_with or name
            assert (run.student(own).files / UNIT / FILE).read_text() == f"{one.word} {one.entry}"
            assert row["elementwise add: final"] == ("100" if one.word == "right" else "0")


def test_a_student_without_a_hand_in_and_files_that_are_nobodys_are_told_apart(graded):
    run, rows = graded
    assert rows["absent"]["elementwise add: state"] == "MISSING"
    assert rows["absent"]["needs a look"] == ""
    assert records.read(run.run, RunRecord).strays == list(STRAYS)
    assert len(rows) == len(ROSTER) + 3  # and three who are not on the roster, or nobody for certain


def test_whose_submission_is_in_doubt_is_told_beside_both(graded):
    _, rows = graded
    for name in ("an.li", "anli"):
        assert "perhaps theirs, and not collected: AN-LI" in rows[name]["needs a look"]


def test_partners_have_one_grade(graded):
    run, rows = graded
    for first, second in (("r1", "s1"), ("t1", "t2")):
        assert rows[first]["elementwise add: final"] == rows[second]["elementwise add: final"]
        both = [run.student(name).unit(UNIT).results.read_bytes() for name in (first, second)]
        assert both[0] == both[1]  # graded once
