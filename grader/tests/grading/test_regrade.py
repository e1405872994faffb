"""Regrades in one record: an interrupted one goes on, one of other files is left alone."""

import json
from dataclasses import replace

import pytest

from grader.grading import regrade
from grader.grading.options import RunOptions
from grader.system.processes import Completed
from grader.tests.helpers.result_fakes import a_lab, a_run, an_exercise

ASKED = RunOptions(labs="1", source="labs")
COMMAND = "python -m grader grade --lab 1 --from labs"


@pytest.fixture
def grades(tmp_path, monkeypatch):
    """A grader that says what it graded without grading: (text of the file) to the runs of the record."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "labs" / "lab1_x" / "x.py"
    file.parent.mkdir(parents=True)
    record = tmp_path / "regrades.json"

    def run(command, *_):
        said = regrade.command_of(command[3:])
        results = regrade.Path(command[-1]) / "results.json"
        digest = regrade.hashlib.sha256(file.read_bytes()).hexdigest()
        lab = a_lab(an_exercise(file="x.py", file_sha256=digest), folder="lab1_x")
        results.write_text(a_run(lab, command=said).model_dump_json())
        return Completed(0, b"")

    monkeypatch.setattr(regrade, "run_tool", run)

    def grade(text, times, asked=ASKED):
        file.write_text(text)
        return list(regrade.grade_again(asked, record, times)), json.loads(record.read_text())

    return grade


def test_a_record_holds_one_run_for_each_time(grades):
    numbers, runs = grades("a", 3)
    assert numbers == [1, 2, 3]
    assert [one["command"] for one in runs] == [COMMAND] * 3


def test_an_interrupted_regrade_goes_on_where_it_ended(grades):
    grades("a", 2)
    numbers, runs = grades("a", 5)
    assert numbers == [3, 4, 5]
    assert len(runs) == 5


@pytest.mark.parametrize(("text", "asked"), [("b", ASKED), ("a", replace(ASKED, keyword="speed"))])
def test_a_record_of_something_else_is_refused(grades, text, asked):
    grades("a", 1)
    with pytest.raises(regrade.RegradeError, match="other files or another command"):
        grades(text, 2, asked)


def test_a_failed_grading_names_its_number_and_words(grades, monkeypatch):
    grades("a", 1)
    failed = Completed(3, b"", b"no such GPU\n")
    monkeypatch.setattr(regrade, "run_tool", lambda *_, **__: failed)
    with pytest.raises(regrade.RegradeError, match="grading 2 of 2 failed: no such GPU"):
        grades("a", 2)
