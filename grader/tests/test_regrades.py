"""Regrades in one record: an interrupted one goes on, one of other files is left alone."""

import json

import pytest

from grader import regrades

COMMAND = "python -m grader grade --lab 1 --from somewhere"
ASKED = ["list"]  # any command that ends well: what it grades is written by `grades`


@pytest.fixture
def grades(tmp_path, monkeypatch):
    """A grader that says what it graded without grading: (text of the file) to the runs of the record."""
    file = tmp_path / "lab1_x" / "x.py"
    file.parent.mkdir()
    record = tmp_path / "regrades.json"

    def run(command, **_):
        results = regrades.Path(command[-1]) / "results.json"
        digest = regrades.hashlib.sha256(file.read_bytes()).hexdigest()
        exercises = [{"file": "x.py", "file_sha256": digest}]
        results.write_text(
            json.dumps({"command": COMMAND, "labs": [{"folder": "lab1_x", "exercises": exercises}]})
        )
        return regrades.subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(regrades.subprocess, "run", run)

    def grade(text, times, command=COMMAND):
        file.write_text(text)
        return list(regrades.grade_again(ASKED, command, tmp_path, record, times)), json.loads(
            record.read_text()
        )

    return grade


def test_a_record_holds_one_run_for_each_time(grades):
    numbers, runs = grades("a", 3)
    assert numbers == [1, 2, 3]
    assert len(runs) == 3


def test_an_interrupted_regrade_goes_on_where_it_ended(grades):
    grades("a", 2)
    numbers, runs = grades("a", 5)
    assert numbers == [3, 4, 5]
    assert len(runs) == 5


@pytest.mark.parametrize(("text", "command"), [("b", COMMAND), ("a", COMMAND + " -k speed")])
def test_a_record_of_something_else_is_refused(grades, text, command):
    grades("a", 1)
    with pytest.raises(regrades.RegradeError, match="other files or another command"):
        grades(text, 2, command)


def test_a_failed_grading_names_its_number_and_words(grades, monkeypatch):
    grades("a", 1)
    failed = regrades.subprocess.CompletedProcess([], 3, "", "no such GPU")
    monkeypatch.setattr(regrades.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(regrades.RegradeError, match="grading 2 of 2 failed: no such GPU"):
        grades("a", 2)
