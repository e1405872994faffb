"""A run in a process that was prepared for it: the same results as in one that was not."""

import contextlib
import json

import psutil
import pytest

from grader.grading import prepared
from grader.system import standby
from grader.tests.helpers.commands import grade
from grader.worker.session import LEAN, Session

ASKED = ["--lab", "1", "--from", "solutions", "-k", "fp32"]


def found(folder):
    """What a run found, without times."""
    results = json.loads((folder / "results.json").read_text())
    items = results["labs"][0]["exercises"][0]["items"]
    assert len(items) > 3
    return [{name: value for name, value in item.items() if name != "seconds"} for item in items]


def standing_by(folder):
    """The processes that stand by with their socket below this folder."""
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if "--standby" in one.cmdline() and one.environ().get("XDG_RUNTIME_DIR") == str(folder):
                found.append(one)
    return found


@pytest.mark.slow
def test_a_run_that_stands_by_finds_what_another_does_and_the_next_one_stands_by(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv(standby.SWITCH, "1")
    cold = grade(*ASKED, "--results", tmp_path / "cold")
    try:
        assert cold.returncode == 0
        (waiting,) = standing_by(tmp_path)
        while not standby.place().exists():
            assert waiting.is_running()
        warm = grade(*ASKED, "--results", tmp_path / "warm")
        assert warm.returncode == 0, warm.stderr
        waiting.wait(20)
        (other,) = standing_by(tmp_path)
        assert other != waiting
    finally:
        for one in standing_by(tmp_path):
            one.kill()
    assert found(tmp_path / "warm") == found(tmp_path / "cold")


def test_a_session_that_was_prepared_is_taken_once_and_only_where_it_fits():
    prepared.prepare("cpu")
    ready = Session._prepared
    try:
        assert Session.of_run("cpu", 5, confined=False) is not ready
        assert Session.of_run("cpu", 5, confined=True) is ready
        assert ready.seed == 5
        other = Session.of_run("cpu", 6, confined=True)
        assert other is not ready
        other.close()
    finally:
        ready.close()
    Session.prepare("cpu")
    folder = Session._prepared.folder
    Session.close_prepared()
    assert not folder.exists()


@pytest.mark.parametrize("lean", [False, True])
def test_the_fork_server_starts_before_the_run_is_known_unless_memory_is_short(monkeypatch, lean):
    monkeypatch.setenv(LEAN, "1") if lean else monkeypatch.delenv(LEAN, raising=False)
    with prepared.early("cpu"):
        assert Session.is_prepared() is not lean
        ready = Session._prepared
        with prepared.early("cpu"):  # one that is prepared already is kept
            assert Session._prepared is ready
    assert not Session.is_prepared()
    assert lean or not ready.folder.exists()


def test_a_fork_server_that_is_already_there_is_asked_for_operators():
    session = Session("cpu", 1)
    try:
        parent = session.parent(interpreted=True)
        assert not parent._has_operators
        assert session.parent(interpreted=True, operators=True) is parent
        assert parent._has_operators
        assert parent.findings
    finally:
        session.close()
