"""The picture of a graded run is drawn from its record, and the record is of the files in this tree."""

import hashlib
import re
from importlib.metadata import version

import pytest

from grader.course.todos import open_todos
from grader.results import reading
from grader.site import graded_run
from grader.tests.helpers.course import ROOT

RESULTS = reading.read(ROOT / graded_run.RECORD)
PINNED = re.search(r"^rich==(\S+)", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)[1]


def test_the_picture_is_what_the_command_draws():
    if version("rich") != PINNED:
        pytest.skip(f"the picture is drawn by rich {PINNED}, whose bytes another release may change")
    assert (ROOT / graded_run.PICTURE).read_text("utf-8") == graded_run.draw(RESULTS)


def test_the_record_is_of_the_half_finished_files():
    graded = {
        f"{lab.folder}/{exercise.file}": exercise.file_sha256
        for lab in RESULTS.labs
        for exercise in lab.exercises
    }
    written = {
        path: hashlib.sha256(text.encode()).hexdigest() for path, text in graded_run.half_done().items()
    }
    assert graded == written


def test_of_lab_2_the_forward_pass_is_written_with_one_mistake():
    _, text = graded_run.half_done().values()
    assert [todo.number for todo in open_todos(text)] == [3, 5, 6, 7]
    assert text.count(graded_run.NOT_RESCALED) == 1
    assert graded_run.RESCALED not in text


def test_a_mistake_that_has_no_place_any_more_is_an_error(tmp_path):
    for name in ("lab1_add", "lab2_softmax"):
        (tmp_path / "solutions" / name).mkdir(parents=True)
        (tmp_path / "solutions" / name / "file.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match="no longer has the line"):
        graded_run.half_done(tmp_path)


def test_the_picture_shows_every_state_and_the_next_step():
    text = graded_run.draw(RESULTS).replace("&#160;", " ")
    shown = ("make grade LAB=1,2", "ok   15 of 15", "WRONG/MISMATCH", "likely cause", "hint 2", "TODO 3")
    for words in (*shown, "NOT STARTED", "points need a GPU"):
        assert words in text
    assert RESULTS.source == "labs"


def test_the_picture_is_light_and_fetches_nothing():
    text = (ROOT / graded_run.PICTURE).read_text("utf-8")
    assert len(text) < 60_000
    assert set(re.findall(r"https?://[^\"\s)]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@font-face|@import|<script|<image|href", text)


def test_a_line_wider_than_the_terminal_goes_on_in_the_next():
    cause = next(
        item.cause for lab in RESULTS.labs for one in lab.exercises for item in one.items if item.cause
    )
    wide = RESULTS.model_dump_json().replace(cause, f"{'word ' * 40}end.")
    text = graded_run.draw(reading.parse(wide)).replace("&#160;", " ")
    rows = re.findall(r'<text [^>]*textLength="([\d.]+)"[^>]*>([^<]*)</text>', text)
    assert any("end." in words for _, words in rows)
    assert max(len(words) for _, words in rows) <= graded_run.COLUMNS
