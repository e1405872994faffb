"""The record of coverage: rooms added up from the files that coverage has counted."""

import json

import pytest

from grader.site import coverage
from grader.tests.helpers.course import ROOT


def counted(folder, files):
    path = folder / "counted.json"
    summaries = {
        name: {"summary": {"num_statements": statements, "covered_lines": run}}
        for name, (statements, run) in files.items()
    }
    path.write_text(json.dumps({"files": summaries}))
    return path


FILES = {
    "grader/__init__.py": (1, 1),
    "grader/judge/run.py": (100, 90),
    "grader/judge/speed.py": (50, 30),
    "grader/site/figures/page.py": (10, 10),
    "labs/lab1/lab.py": (20, 0),
}


def test_files_add_up_by_room_and_what_is_in_none_is_left_out(tmp_path):
    found = coverage.record(counted(tmp_path, FILES), "-m x")
    assert [(one.room, one.statements, one.run) for one in found.rooms] == [
        ("judge", 150, 120),
        ("site", 10, 10),
    ]
    assert found.tests == "-m x"


def test_a_count_without_a_file_of_the_grader_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no file of the grader"):
        coverage.record(counted(tmp_path, {"labs/lab1/lab.py": (20, 0)}), "-m x")


def test_the_table_has_each_room_all_of_them_and_what_was_not_seen(tmp_path):
    (tmp_path / "solutions" / "results").mkdir(parents=True)
    path = coverage.save(coverage.record(counted(tmp_path, FILES), "-m x"), tmp_path)
    text = coverage.table(path)
    assert "| judge | 150 | 120 | 80 |" in text
    assert "| all | 160 | 130 | 81 |" in text
    assert "pytest -m x;" in text
    assert coverage.UNSEEN in text


def test_the_record_has_a_figure_for_every_room():
    found = coverage.CoverageRecord.model_validate_json((ROOT / coverage.RECORD).read_text("utf-8"))
    rooms = {path.parent.name for path in (ROOT / "grader").glob("*/__init__.py")}
    assert {one.room for one in found.rooms} == rooms
    assert all(0 < one.run <= one.statements for one in found.rooms)
