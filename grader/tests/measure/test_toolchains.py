"""Other versions of Triton: what is recorded of each, and what is shown of it."""

import pytest

from grader.measure import toolchains
from grader.tests.helpers.course import ROOT


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """Two checks that run nothing; an environment is a path with the version in it."""
    monkeypatch.setattr(toolchains, "environment", lambda version: tmp_path / version)
    held = {"3.8.0": 3.0, "3.9.0": 2.0}
    checks = {"labs": lambda python: (held[python.name], 3.0), "solutions": lambda _: (1.5, 1.5)}
    monkeypatch.setattr(toolchains, "CHECKS", checks)
    return [*checks]


def test_each_check_of_each_version_is_in_the_record_as_soon_as_it_ends(counted):
    told = [
        (version, check.name, check.cell, sum(len(one.checks) for one in record.toolchains))
        for version, check, record in toolchains.measure(["3.8.0", "3.9.0"], counted, None)
    ]
    assert told == [
        ("3.8.0", "labs", "3 of 3", 1),
        ("3.8.0", "solutions", "1.5 of 1.5", 2),
        ("3.9.0", "labs", "2 of 3", 3),
        ("3.9.0", "solutions", "1.5 of 1.5", 4),
    ]


@pytest.mark.usefixtures("counted")
def test_what_was_recorded_of_others_is_kept():
    (*_, (_, _, before)) = toolchains.measure(["3.8.0"], ["labs"], None)
    (*_, (_, _, after)) = toolchains.measure(["3.9.0"], ["solutions"], before)
    assert [(one.triton, [each.name for each in one.checks]) for one in after.toolchains] == [
        ("3.8.0", ["labs"]),
        ("3.9.0", ["solutions"]),
    ]


def test_an_environment_that_cannot_be_made_says_why(monkeypatch, tmp_path):
    monkeypatch.setattr(toolchains, "FOLDER", tmp_path)
    with pytest.raises(RuntimeError, match=r"Triton 0\.0\.1 could not be installed"):
        toolchains.environment("0.0.1")


def failing(tmp_path):
    """A Python that writes no results, as where a version of Triton breaks the grader's imports."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'ImportError: no such name' >&2\nexit 1\n")
    python.chmod(0o755)
    return python


@pytest.mark.parametrize("name", [*toolchains.CHECKS])
def test_a_check_that_ends_without_results_takes_none_of_an_earlier_version(name, tmp_path, monkeypatch):
    graded = tmp_path / "graded"
    graded.mkdir()
    record = ROOT / "solutions" / "results" / "cpu.json"
    (graded / "results.json").write_bytes(record.read_bytes())
    monkeypatch.setattr(toolchains, "GRADED", graded)
    if name == "notebooks":
        assert toolchains.CHECKS[name](failing(tmp_path)) == (0.0, 1.0)
        return
    with pytest.raises(RuntimeError, match="ImportError: no such name"):
        toolchains.CHECKS[name](failing(tmp_path))


def test_the_record_holds_versions_that_are_tried():
    record = toolchains.load()
    assert record is not None
    assert record.toolchains
    assert {one.triton for one in record.toolchains} <= set(toolchains.VERSIONS)
    assert all(check.name in toolchains.CHECKS for one in record.toolchains for check in one.checks)
    page = (ROOT / "solutions" / "README.md").read_text("utf-8")
    assert all(f"| {one.triton} |" in page for one in record.toolchains)
