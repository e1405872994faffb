"""What is made of a class run: a row for everybody, files that importers take, pages safe to open."""

import csv
import io
import json
import re
import shutil

import pytest
from click.testing import CliRunner

from grader.classroom.gradebook import imports, late, leaderboard, tables, view
from grader.classroom.gradebook.book import OPEN
from grader.classroom.gradebook.command import Asked, make
from grader.classroom.gradebook.reading import BookError, read
from grader.classroom.gradebook.rubric import RubricError
from grader.classroom.records import ROSTER, State, TakenFile
from grader.classroom.run_folder import RunFolder
from grader.cli.main import main
from grader.results.points import text
from grader.tests.classroom.class_fakes import CAPSTONE, LABS, FakeClass, lab_of, record, small_class
from grader.tests.helpers.commands import python
from grader.tests.helpers.html_page import Page

ONE, TWO = LABS
POLICY = """
timezone = "Europe/Vienna"
tokens = 1
percent_per_day = 10
[due]
1 = 2026-10-05 23:59:00
2 = 2026-10-05 23:59:00
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A small class with its gradebook, without a policy; the folder of the run."""
    out = small_class(tmp_path_factory.mktemp("class") / "out")
    make(Asked(out))
    return out


@pytest.fixture(scope="module")
def made(plain, tmp_path_factory):
    """The same class with a late policy and a leaderboard."""
    out = tmp_path_factory.mktemp("made") / "out"
    shutil.copytree(plain, out)
    (out / "late.toml").write_text(POLICY)
    make(Asked(out, policy=out / "late.toml", leaderboard=True))
    return out


@pytest.fixture
def out(plain, tmp_path):
    """The class without a policy, to be changed."""
    copy = tmp_path / "out"
    shutil.copytree(plain, copy)
    return copy


def rows_of(path):
    return list(csv.reader(io.StringIO(path.read_bytes().decode("utf-8"))))


def grades(out):
    head, *rows = rows_of(out / "gradebook" / "grades.csv")
    assert all(len(row) == len(head) for row in rows)
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


def test_everybody_has_one_row_whatever_became_of_the_work(made):
    rows = grades(made)
    assert list(rows) == ["ada", "bob", "cyd", "dan", "eve", "fay", "gus"]
    states = {
        name: (row["elementwise add: state"], row["online softmax: state"]) for name, row in rows.items()
    }
    assert states == {
        "ada": ("GRADED", "GRADED"),
        "bob": ("GRADED", "GRADED"),
        "cyd": ("MISSING", "MISSING"),
        "dan": ("REFUSED", "REFUSED"),
        "eve": ("TIMEOUT", "FAULT"),
        "fay": ("GRADED", OPEN),
        "gus": ("GRADED", OPEN),
    }
    assert rows["eve"]["online softmax: final"] == "", "the machine's fault costs no points"
    assert rows["eve"]["online softmax: not graded"] == "100"
    assert rows["eve"]["open"] == "online softmax"


def test_what_a_person_should_look_at_is_said(made):
    rows = grades(made)
    assert rows["ada"]["needs a look"] == ""
    assert "handed in, not graded: <i>x</i>.py" in rows["bob"]["needs a look"]
    assert "archive is damaged" in rows["dan"]["needs a look"]
    assert "TIMEOUT" in rows["eve"]["needs a look"]
    assert "not on the roster" in rows["gus"]["needs a look"]


def test_days_late_cost_points_and_a_token_goes_where_it_keeps_most(made):
    row = grades(made)["bob"]
    assert (row["elementwise add: days late"], row["elementwise add: tokens"]) == ("3", "0")
    assert (row["online softmax: days late"], row["online softmax: tokens"]) == ("3", "1")
    assert row["online softmax: late cost %"] == "20"
    assert float(row["online softmax: final"]) == pytest.approx(
        0.8 * float(row["online softmax: raw"]), abs=0.01
    )
    assert row["tokens left"] == "0"


def test_points_of_the_grader_are_those_of_the_results_file(made):
    stored = lab_of(record("cpu.json"), TWO)
    row = grades(made)["ada"]
    assert row["online softmax: points"] == text(stored.points)
    assert row["online softmax: not graded"] == text(stored.not_graded_points)
    by_exercise = sum(
        float(value) for name, value in row.items() if re.match(r"online softmax: softmax", name)
    )
    assert round(by_exercise, 2) == float(row["online softmax: points"])


def test_canvas_takes_the_file_as_it_is(made):
    head, possible, *rows = rows_of(made / "gradebook" / "canvas.csv")
    # What lib/gradebook_importer.rb of Canvas looks for, column by column.
    assert [want in got for want, got in zip(("Student", "ID"), head, strict=False)] == [True, True]
    assert head[2:5] == ["SIS User ID", "SIS Login ID", "Section"]
    assert head[5:] == ["elementwise add (77)", "Lab 2: online softmax"], "an assignment's id is the export's"
    assert possible[0].strip() == "Points Possible"
    assert [float(cell) for cell in possible[5:]] == [100.0, 100.0]
    assert all(len(row) == len(head) for row in (possible, *rows))
    by_id = {row[1]: row for row in rows}
    assert set(by_id) == {"101", "102", "103", "104", "105", "106"}, "nobody who is not in the course"
    assert by_id["103"][0] == "Çelik, Cyd"
    assert by_id["105"][5:] == ["0", ""], "no grade where the machine was at fault"
    assert not (made / "gradebook" / "canvas.csv").read_bytes().startswith(b"\xef\xbb\xbf")


def test_without_canvas_ids_no_number_stands_in_their_column(tmp_path):
    fake = FakeClass(tmp_path / "out")
    fake.add("4711", line={"id": "4711", "name": "Ada"})
    _, _, row = csv.reader(io.StringIO(imports.canvas(read(RunFolder(fake.finish()))).text))
    assert row[:5] == ["Ada", "", "", "4711", ""]


def test_moodle_takes_the_file_as_it_is(made):
    head, *rows = rows_of(made / "gradebook" / "moodle.csv")
    assert head[0] == "Email address"
    assert all(len(row) == len(head) for row in rows)
    assert {row[0] for row in rows} == {
        f"{name}@example.org" for name in ("ada", "bob", "cyd", "dan", "eve", "fay")
    }
    cells = [cell for row in rows for cell in row[1:]]
    assert "-" in cells, "Moodle's sign for no grade"
    # A larger grade makes Moodle refuse the whole file.
    assert all(cell == "-" or 0 <= float(cell) <= 100 for cell in cells)


def test_a_lab_of_more_than_a_hundred_points_is_a_percentage_in_moodle(tmp_path):
    fake = FakeClass(tmp_path / "out", {CAPSTONE: "capstone"})
    fake.add("ada", line={"id": "ada", "email": "ada@example.org"})
    capstone = record("h200-capstone.json")
    fake.grade("ada", CAPSTONE, capstone)
    head, row = csv.reader(io.StringIO(imports.moodle(read(RunFolder(fake.finish()))).text))
    assert head[1] == "Capstone (percent)"
    assert float(row[1]) == pytest.approx(100 * capstone.points / 200, abs=0.01)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r\n=1", "\uff1d1"])
def test_no_text_is_a_formula(text):
    assert tables.safe(text).startswith("'")


def test_no_cell_of_any_file_is_a_formula(made):
    cells = [
        cell
        for name in ("grades.csv", "canvas.csv", "moodle.csv")
        for row in rows_of(made / "gradebook" / name)
        for cell in row
    ]
    assert any("HYPERLINK" in cell for cell in cells)
    assert not [cell for cell in cells if cell.startswith(tables.FORMULA) and cell != "-"]


def test_every_page_is_whole_escapes_and_asks_the_network_for_nothing(made):
    pages = sorted((made / "gradebook").rglob("*.html"))
    assert {"class.html", "leaderboard.html"} < {page.name for page in pages}
    assert sum(page.name == "index.html" for page in pages) == 7
    assert sum(page.name == f"{ONE}.html" for page in pages) == 4
    for path in pages:
        text = path.read_text("utf-8")
        page = Page(text)
        tags = {tag for tag, _ in page.tags}
        assert not tags & {"script", "img", "link", "iframe", "b-", "i-"}
        links = [attributes.get("href", "") for attributes in page.all("a")]
        assert not [link for link in links if re.match(r"\w+:|//", link)]
        assert "default-src 'none'" in text
        assert str(made) not in text, "a page names a folder of the machine that graded"


def test_links_of_the_class_page_lead_to_pages(made):
    folder = made / "gradebook"
    links = [
        a["href"] for a in Page((folder / "class.html").read_text("utf-8")).all("a") if a["href"][0] != "#"
    ]
    assert {links.count(link) for link in links} == {3}  # in each order of the table
    assert len(set(links)) == 7
    assert all((folder / link).is_file() for link in links)


def test_the_class_page_says_which_case_fails_how_many_and_why(made):
    (one,) = (e for e in view.exercises(read(RunFolder(made))) if e.name == "elementwise_add")
    assert (one.judged, one.all_right) == (4, 3)
    assert {case.failed for case in one.failing} == {1}
    assert one.failing[0].causes == [("the last, partial block was never written", 1)]
    assert "the last, partial block was never written" in (made / "gradebook" / "class.html").read_text(
        "utf-8"
    )


def test_a_distribution_counts_everybody_who_was_graded_once(made):
    spread = view.spreads(read(RunFolder(made)))[0]
    assert sum(spread.bins) == dict(spread.states)["GRADED"] == 4
    assert spread.bins[-1] == 3, "full marks are in the last bin"


def test_a_self_test_that_failed_is_the_first_thing_on_the_page(out):
    known = json.loads((out / "selftest.json").read_text())
    known["held"] = known["known"][0]["held"] = False
    (out / "selftest.json").write_text(json.dumps(known))
    make(Asked(out))
    words = Page((out / "gradebook" / "class.html").read_text("utf-8")).words
    assert words.index("The self-test failed") < words.index("Which cases fail")


def test_the_lab_page_shows_points_before_and_after_being_late(made):
    text = (made / "gradebook" / "students" / "bob" / f"{TWO}.html").read_text("utf-8")
    points = lab_of(record("cpu.json"), TWO).graded_points
    said = f"{points:.2f} points before the late penalty, {0.8 * points:.2f} after"
    assert f"3 days late, 1 token used, 20 % off: {said}" in text


def test_only_nicknames_are_on_the_leaderboard_and_none_by_default(out):
    make(Asked(out))
    assert not (out / "gradebook" / "leaderboard.html").exists()
    fay = out / "students" / "fay" / "intake.json"
    fay.write_text(fay.read_text().replace('"nickname": ""', '"nickname": "<b>zip</b>"'))
    assert [
        (board.exercise, [p.nickname for p in board.places])
        for board in leaderboard.boards(read(RunFolder(out)))
    ] == [("elementwise_add", ["<b>zip</b>"])]
    make(Asked(out, leaderboard=True))
    text = (out / "gradebook" / "leaderboard.html").read_text("utf-8")
    assert "&lt;b&gt;zip&lt;/b&gt;" in text
    assert "Fay" not in text


def test_points_of_a_person_outlast_a_second_grading(out):
    rubric = out / "rubric.csv"
    rubric.write_text(f"student,criterion,points,of,unit\nada,clarity,7,10,{ONE}\nbob,clarity,4,10,{ONE}\n")
    make(Asked(out, rubric=rubric))
    rubric.write_text(f"student,criterion,points,of,unit\nbob,clarity,5,10,{ONE}\n")
    make(Asked(out, rubric=rubric))
    rubric.unlink()
    FakeClass(out).grade("ada", ONE, lab_of(record("h200.json"), ONE))
    make(Asked(out))
    rows = grades(out)
    assert [rows[name]["elementwise add: prose"] for name in ("ada", "bob", "cyd")] == ["7", "5", ""]
    assert (rows["ada"]["elementwise add: points"], rows["ada"]["elementwise add: raw"]) == (
        "100",
        "107",
    )
    assert rows["ada"]["elementwise add: of"] == "110"


def test_a_wrong_rubric_changes_nothing(out):
    make(Asked(out))
    before = (out / "gradebook" / "grades.csv").read_bytes()
    rubric = out / "rubric.csv"
    rubric.write_text("student,criterion,points,of\nzoe,clarity,7,10\n")
    with pytest.raises(RubricError):
        make(Asked(out, rubric=rubric))
    assert (out / "gradebook" / "grades.csv").read_bytes() == before
    assert not (out / "gradebook" / "given" / "rubric.csv").exists()


def test_the_policy_is_remembered(out):
    (out / "late.toml").write_text(POLICY)
    make(Asked(out, policy=out / "late.toml"))
    first = (out / "gradebook" / "grades.csv").read_bytes()
    (out / "late.toml").unlink()
    make(Asked(out))
    assert (out / "gradebook" / "grades.csv").read_bytes() == first


def test_whoever_stands_only_on_a_later_roster_has_a_row_too(out):
    roster = out / "roster.csv"
    roster.write_text("id,name,email\nada,Ada,ada@x.org\nzoe,Zoë,zoe@x.org\n", "utf-8")
    make(Asked(out, roster=roster))
    rows = grades(out)
    assert (rows["zoe"]["name"], rows["zoe"]["elementwise add: state"]) == ("Zoë", State.MISSING.value)
    assert (rows["ada"]["on roster"], rows["bob"]["on roster"]) == ("yes", "no")


def test_a_run_that_has_not_ended_has_a_gradebook_with_open_labs(out):
    (out / "students" / "ada" / ONE / "task.json").unlink()
    record_of = json.loads((out / "run.json").read_text()) | {"finished": None}
    (out / "run.json").write_text(json.dumps(record_of))
    (out / "selftest.json").unlink()
    (out / "drift.json").unlink()
    make(Asked(out))
    assert grades(out)["ada"]["elementwise add: state"] == OPEN


def test_results_that_are_not_those_that_were_graded_do_not_count(out):
    path = out / "students" / "ada" / ONE / "results.json"
    path.write_text(path.read_text().replace('"grader": "', '"grader": "my own '))
    row = read(RunFolder(out)).rows[0]
    assert (row.cells[0].state, row.cells[0].not_graded) == (OPEN, pytest.approx(100.0))


def test_a_page_is_drawn_again_only_where_something_changed(out):
    make(Asked(out))
    page = out / "gradebook" / "students" / "ada" / f"{ONE}.html"
    page.write_text(page.read_text("utf-8") + "<!-- as it was -->", "utf-8")
    make(Asked(out))
    assert "as it was" in page.read_text("utf-8")
    FakeClass(out).grade("ada", ONE, lab_of(record("h200.json"), ONE))
    make(Asked(out))
    assert "as it was" not in page.read_text("utf-8")


def test_the_command_says_what_it_wrote_and_errors_are_one_line(out, tmp_path):
    done = CliRunner().invoke(main, ["gradebook", str(out)])
    assert done.exit_code == 0
    assert "grades.csv" in done.output
    (tmp_path / "empty").mkdir()
    wrong = CliRunner().invoke(main, ["gradebook", str(tmp_path / "empty")])
    assert wrong.exit_code == 2
    assert "no class run in this folder" in wrong.output
    (out / "students" / "ada" / "intake.json").write_text("{")
    with pytest.raises(BookError, match=r"intake.json"):
        read(RunFolder(out))


def test_making_a_gradebook_needs_no_torch(out):
    code = (
        "import sys; from pathlib import Path; from grader.classroom.gradebook.command import Asked, make; "
        f"make(Asked(Path({str(out)!r}))); sys.exit('torch' in sys.modules)"
    )
    assert python("-c", code).returncode == 0


def test_a_low_assurance_stands_beside_the_grade(out):
    low = {"assurance": "L1; for L2: no Landlock in this kernel", "assurance_level": 1}
    results = lab_of(record("h200.json"), ONE).model_copy(update=low)
    FakeClass(out).grade("ada", ONE, results)
    make(Asked(out))
    assert "assurance L1" in grades(out)["ada"]["notes"]


def test_a_class_without_a_roster_is_told_so_once_for_each_file(tmp_path):
    fake = FakeClass(tmp_path / "out")
    for student in ("ada", "bob"):
        fake.add(student)
        fake.grade(student, ONE, lab_of(record("cpu.json"), ONE))
    words = [one for one in make(Asked(fake.finish())).warnings if "roster" in one]
    assert [one.split(":")[0] for one in words] == ["canvas.csv", "moodle.csv"]
    assert all("make gradebook ROSTER=" in one and "ada" not in one for one in words)


@pytest.mark.parametrize(("by", "days"), [("date of the commit", [0, 1]), (ROSTER, [1, 1])])
def test_a_lab_is_late_by_its_own_files_unless_the_roster_has_the_time(tmp_path, by, days):
    dates = {ONE: "2026-10-04T12:00:00+00:00", TWO: "2026-10-06T12:00:00+00:00"}
    files = [
        TakenFile(path=f"{unit}/x.py", sha256="0", bytes=1, found="x.py", changed=date)
        for unit, date in dates.items()
    ]
    fake = FakeClass(tmp_path / "out")
    fake.add("ada", dates[TWO], {"id": "ada"}, files=files, handed_in_by=by)
    for unit in (ONE, TWO):
        fake.grade("ada", unit, lab_of(record("cpu.json"), unit))
    (tmp_path / "late.toml").write_text(POLICY)
    make(Asked(fake.finish(), policy=tmp_path / "late.toml"))
    (row,) = read(RunFolder(tmp_path / "out"), late.read(tmp_path / "late.toml")).rows
    assert [cell.late.days for cell in row.cells] == days
    page = (tmp_path / "out" / "gradebook" / "students" / "ada" / f"{ONE}.html").read_text()
    assert ("handed in 2026-10-04 14:00:00, in time" in page) == (not days[0])
