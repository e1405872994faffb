"""One person's case: excused, more tokens, a partner, a changed result, a grade on a part of the points."""

import csv
import dataclasses
import io

import pytest

from grader.classroom import records
from grader.classroom.gradebook import late
from grader.classroom.gradebook.command import Asked, make
from grader.classroom.records import LeftOut, RunRecord, State
from grader.tests.classroom.class_fakes import LABS, FakeClass, lab_of, small_class, wrong
from grader.tests.helpers.html_page import Page
from grader.tests.helpers.result_fakes import record

ONE, TWO = LABS
POLICY = 'timezone = "UTC"\ntokens = 1\npercent_per_day = 10\n[due]\n1 = 2026-10-04 12:00:00\n'


def rows_of(folder, name):
    text = (folder / "gradebook" / name).read_text("utf-8")
    header, *rows = csv.reader(io.StringIO(text))
    return [dict(zip(header, row, strict=True)) for row in rows]


def by_student(folder):
    return {row["student"]: row for row in rows_of(folder, "grades.csv")}


def policy(folder, more):
    file = folder / "late.toml"
    file.write_text(POLICY + more)
    return file


@pytest.fixture
def out(tmp_path):
    return small_class(tmp_path / "out")


def test_an_excused_lab_does_not_count_and_canvas_is_told(out, tmp_path):
    make(Asked(out, policy=policy(tmp_path, '[excused]\nada = ["2"]\n')))
    row = by_student(out)["ada"]
    assert row["online softmax: state"] == "EXCUSED"
    assert (row["of"], row["final"]) == (row["elementwise add: of"], row["elementwise add: final"])
    canvas = {row["SIS Login ID"]: row for row in rows_of(out, "canvas.csv")[1:]}
    assert canvas["ada"]["Lab 2: online softmax"] == "EX"
    assert canvas["bob"]["Lab 2: online softmax"] not in ("", "EX")
    moodle = {row["Email address"]: row for row in rows_of(out, "moodle.csv")}
    assert moodle["ada@example.org"]["Lab 2: online softmax"] == "-"
    page = Page((out / "gradebook" / "students" / "ada" / "index.html").read_text("utf-8"))
    assert "excused" in page.words


def test_one_student_can_have_more_tokens_and_more_days_for_every_lab(tmp_path):
    plain = late.read(policy(tmp_path, ""))
    more = late.read(policy(tmp_path, "[more_tokens]\nbob = 2\n[extensions.bob]\nall = 3\n"))
    assert (plain.tokens_of("bob"), more.tokens_of("bob"), more.tokens_of("ada")) == (1, 3, 1)
    assert (more.due_of("bob", "1") - plain.due_of("bob", "1")).days == 3
    assert more.due_of("ada", "1") == plain.due_of("ada", "1")


def test_an_excuse_for_nobody_is_a_warning(out, tmp_path):
    made = make(Asked(out, policy=policy(tmp_path, '[excused]\nnobody = ["9"]\n')))
    assert [line for line in made.warnings if "nobody" in line]
    assert [line for line in made.warnings if "no lab 9" in line]


def test_partners_have_one_grade_and_both_pages_say_so(tmp_path):
    fake = FakeClass(tmp_path / "out")
    for name, partner in (("ada", "bob"), ("bob", "ada")):
        fake.add(name, line={"id": name, "name": name.title()}, partners=[partner],
                 graded_with="ada" if name == "bob" else "")  # fmt: skip
    for name in ("ada", "bob"):
        fake.grade(name, ONE, lab_of(record("cpu.json"), ONE, wrong))
        fake.grade(name, TWO, lab_of(record("cpu.json"), TWO))
    out = fake.finish()
    make(Asked(out))
    rows = by_student(out)
    assert rows["ada"]["final"] == rows["bob"]["final"] != "0.00"
    for name, partner in (("ada", "Bob"), ("bob", "Ada")):
        for file in ("index.html", f"{ONE}.html"):
            page = Page((out / "gradebook" / "students" / name / file).read_text("utf-8"))
            assert f"Handed in together with {partner}." in page.words


def test_a_result_that_was_changed_is_said_on_the_screen_and_in_the_column(out):
    file = out / "students" / "ada" / ONE / "results.json"
    file.write_text(file.read_text().replace('"points": ', '"points":  ', 1))
    made = make(Asked(out))
    assert [line for line in made.warnings if "changed after it was graded" in line and "ada" in line]
    row = by_student(out)["ada"]
    assert "results.json or its receipt was changed after it was graded" in row["needs a look"]
    assert row["open"] == "elementwise add"


def test_an_open_lab_keeps_the_grade_that_canvas_has(tmp_path):
    fake = FakeClass(tmp_path / "out")
    line = {"Student": "Lovelace, Ada", "ID": "101", "SIS Login ID": "ada", "Section": "1",
            "elementwise add (77)": "12.50"}  # fmt: skip
    fake.add("ada", line=line)
    fake.grade("ada", ONE, None, State.FAULT, "the machine was lost")
    out = fake.finish()
    make(Asked(out))
    assert rows_of(out, "canvas.csv")[1]["elementwise add (77)"] == "12.50"


def test_canvas_gets_the_rosters_own_id(tmp_path):
    fake = FakeClass(tmp_path / "out")
    fake.add("j-doe-1a2b3c4d", line={"id": "j doe/1", "name": "J Doe"})
    out = fake.finish()
    make(Asked(out))
    assert rows_of(out, "canvas.csv")[1]["SIS Login ID"] == "j doe/1"
    assert rows_of(out, "moodle.csv")[0]["Username"] == "j doe/1"


def test_a_grade_on_fewer_points_than_the_column_has_is_marked(out):
    make(Asked(out))
    rows = by_student(out)
    assert rows["ada"]["partly graded"].startswith("elementwise add: graded on ")
    assert rows["fay"]["partly graded"] == ""  # on a GPU, where all of the lab can be graded
    assert rows["dan"]["partly graded"] == ""  # nothing was graded


def test_what_was_handed_in_and_not_collected_is_named(tmp_path):
    fake = FakeClass(tmp_path / "out")
    left = [LeftOut(found="lab1.ipynb", why="not a collected file", unit=ONE, look=True)]
    fake.add("ada", line={"id": "ada"}, left_out=left, close_match=True, doubtful=["a-da.zip"])
    fake.grade("ada", ONE, None, State.NOT_COLLECTED, "handed in under another name: lab1.ipynb")
    out = fake.finish()
    make(Asked(out))
    looks = by_student(out)["ada"]["needs a look"]
    for words in ("lab1.ipynb", "NOT_COLLECTED", "a-da.zip", "not spelled like the roster's id"):
        assert words in looks


def test_the_class_page_sorts_and_filters_by_section_without_a_script(tmp_path):
    fake = FakeClass(tmp_path / "out")
    for number, name in enumerate(("ada", "bob", "cyd")):
        fake.add(name, line={"id": name, "section": "ab"[number % 2]})
    out = fake.finish()
    make(Asked(out))
    text = (out / "gradebook" / "class.html").read_text("utf-8")
    assert "<script" not in text
    page = Page(text)
    classes = [row.get("class") for row in page.all("tr")]
    orders = [one for one in page.all("input") if one["name"] == "sort"]
    assert (classes.count("section-1"), classes.count("section-2")) == (2 * len(orders), len(orders))
    assert len([one for one in page.all("input") if one["name"] == "section"]) == 3


def test_two_students_of_one_address_get_no_line_and_are_named(tmp_path):
    fake = FakeClass(tmp_path / "out")
    for name in ("ada", "bob", "cyd"):
        fake.add(name, line={"id": name, "email": "cyd@x" if name == "cyd" else "team@x"})
    made = make(Asked(fake.finish()))
    assert [row["Email address"] for row in rows_of(tmp_path / "out", "moodle.csv")] == ["cyd@x"]
    assert [line for line in made.warnings if "moodle.csv: ada, bob: the same account" in line]


def test_a_student_of_an_earlier_roster_gets_no_line(tmp_path):
    fake = FakeClass(tmp_path / "out")
    fake.add("ada", line={"id": "ada"})
    fake.add("old", line={"id": "old"})
    out = fake.finish()
    run = records.read(out / "run.json", RunRecord)
    records.write(out / "run.json", run.model_copy(update={"gone": ["old"]}))
    make(Asked(out))
    assert [row["SIS Login ID"] for row in rows_of(out, "canvas.csv")[1:]] == ["ada"]


def test_two_gpu_models_in_one_run_are_a_warning(tmp_path):
    fake = FakeClass(tmp_path / "out")
    fake.add("ada", line={"id": "ada"})
    out = fake.finish()
    run, one = records.read(out / "run.json", RunRecord), record("h200.json").machine
    other = one.model_copy(update={"gpu": dataclasses.replace(one.gpu, name="NVIDIA H100")})
    records.write(out / "run.json", run.model_copy(update={"machines": [one, other]}))
    make(Asked(out))
    page = Page((out / "gradebook" / "class.html").read_text("utf-8"))
    assert "Graded on NVIDIA H100 and NVIDIA H200" in page.words
