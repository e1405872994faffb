"""One student is erased: no file of the run folder names them, and everybody else keeps everything."""

import pytest

from grader.classroom.gradebook.command import Asked, make
from grader.classroom.grading.erase import EraseError, erase
from grader.classroom.records import State
from grader.tests.classroom.class_fakes import LABS, FakeClass, lab_of, small_class
from grader.tests.helpers.commands import python
from grader.tests.helpers.result_fakes import record

ONE, _ = LABS
PROBLEM = "this could be the submission of an.li or anli: name it by the id of its student"
RUBRIC = f"student,criterion,points,of,unit\nada,style,1,2,{ONE}\nbob,style,2,2,{ONE}\n"


@pytest.fixture
def out(tmp_path):
    folder = small_class(tmp_path / "out")
    roster = tmp_path / "roster.csv"
    roster.write_text(
        "id,email\n" + "".join(f"{name},{name}@example.org\n" for name in ("ada", "bob", "cyd"))
    )
    rubric = tmp_path / "rubric.csv"
    rubric.write_text(RUBRIC)
    make(Asked(folder, roster=roster, rubric=rubric))
    return folder


def naming(folder, *words):
    """The files whose path or text has one of the words."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [
        path.relative_to(folder).as_posix()
        for path in files
        if any(
            word in path.relative_to(folder).as_posix() or word.encode() in path.read_bytes()
            for word in words
        )
    ]


def test_nothing_in_the_folder_names_an_erased_student(out):
    words = ("ada/", "ada@example.org", "Lovelace", '"ada"', "\nada,")
    assert len(naming(out, *words)) > 5
    others = {path: path.read_bytes() for path in (out / "students" / "bob").rglob("*") if path.is_file()}
    done = python("-m", "grader", "erase", out, "--only", "ada", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "erased: students/ada" in done.stdout
    assert "not erased: the folder of submissions" in done.stdout
    assert naming(out, *words) == []
    assert {path: path.read_bytes() for path in others} == others
    assert "bob" in (out / "gradebook" / "grades.csv").read_text()
    given = (out / "gradebook" / "given" / "roster.csv").read_text()
    assert [line.split(",")[0] for line in given.splitlines()] == ["id", "bob", "cyd"]


def test_a_submission_that_could_have_been_theirs_names_them_no_more(tmp_path):
    fake = FakeClass(tmp_path / "out")
    fake.add("an.li", line={"id": "an.li"})
    fake.add("an-li", problem=PROBLEM)
    fake.grade("an-li", ONE, None, State.REFUSED, PROBLEM)
    out = fake.finish()
    erase(out, "an.li", out / "gradebook")
    assert naming(out, "an.li") == []
    assert naming(out / "students" / "an-li", "(erased) or anli")


def test_whoever_does_not_exist_is_an_error_and_nothing_is_removed(out):
    before = sorted(out.rglob("*"))
    with pytest.raises(EraseError, match="no student nobody"):
        erase(out, "nobody", out / "gradebook")
    assert [path for path in before if not path.exists()] == []


def test_a_partner_keeps_the_grade_and_the_erased_one_is_no_partner_any_more(tmp_path):
    fake = FakeClass(tmp_path / "out")
    for name, partner in (("ada", "bob"), ("bob", "ada")):
        fake.add(name, line={"id": name}, partners=[partner], graded_with="ada" if name == "bob" else "")
        fake.grade(name, ONE, lab_of(record("cpu.json"), ONE))
    out = fake.finish()
    erase(out, "ada", out / "gradebook")
    assert (out / "students" / "bob" / ONE / "results.json").exists()
    assert naming(out / "students", '"ada"') == []


def test_a_late_policy_that_names_them_is_told_with_the_page_that_repeats_the_name(out):
    (out / "gradebook" / "given" / "late.toml").write_text("[excused]\nada = ['1']\n")
    told = [line for line in erase(out, "ada", out / "gradebook").left if "late.toml" in line]
    assert "class.html" in told[0]
    make(Asked(out))
    assert sorted(naming(out / "gradebook", "ada = ", "student ada")) == ["class.html", "given/late.toml"]
