"""A run that is handed over: who may ask, what the process that stands by gets, and when it ends."""

import json
import os
import signal
import subprocess
import sys

import pytest

from grader.system import standby
from grader.tests.helpers.course import ROOT

# Stands by, and then prints what it got, sleeps, and ends with a code: its arguments.
STANDS_BY = """
import json, os, signal, sys, threading, time
from grader.system import standby
waiting = standby.Standby()
print("ready", flush=True)
wanted = waiting.take(float(sys.argv[1]), 0.1)
if wanted is None:
    sys.exit(3)
wanted.apply()
threading.Thread(target=waiting.end_with_asker, daemon=True).start()
try:
    print(json.dumps([os.getcwd(), os.environ.get("COLOUR"), os.environ[standby.SWITCH]]), flush=True)
    seconds, code = map(int, wanted.arguments)
    time.sleep(seconds)
except KeyboardInterrupt:
    code = 130
waiting.done(code)
"""
ASKS = "import sys; from grader.system import standby; sys.exit(standby.run(sys.argv[1:]) or 99)"


@pytest.fixture
def run_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def stands_by(run_folder):
    assert run_folder.is_dir()
    started = []

    def start(idle_s=20.0, **more):
        command = [sys.executable, "-c", STANDS_BY, str(idle_s)]
        one = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ | more)
        started.append(one)
        assert one.stdout.readline() == "ready\n"
        return one

    yield start
    for one in started:
        one.kill()
        one.communicate()


def ask(*arguments, folder=ROOT, **more):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    return subprocess.Popen(
        [sys.executable, "-c", ASKS, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(autouse=True)
def same_python_path(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def test_folder_environment_streams_and_exit_code_are_those_of_whoever_asks(stands_by, tmp_path):
    one = stands_by()
    asked = ask("0", "7", folder=tmp_path, COLOUR="red")
    out, _ = asked.communicate(timeout=20)
    assert json.loads(out) == [str(tmp_path), "red", "0"]
    assert asked.returncode == 7
    assert one.wait(20) == 0
    assert list(standby.place().parent.iterdir()) == []  # it is used once


@pytest.mark.usefixtures("run_folder")
def test_nobody_who_stands_by_is_no_error():
    assert standby.run(["0", "7"]) is None
    standby.place().touch()  # left behind by one that was killed
    assert standby.run(["0", "7"]) is None


@pytest.mark.parametrize("name", ["TRITON_PRINT_AUTOTUNING", "GRADER_SCRATCH", "PATH"])
def test_one_with_another_environment_is_not_used_and_ends(stands_by, name):
    one = stands_by(**{name: os.environ.get(name, "") + "x"})
    asked = ask("0", "7")
    asked.communicate(timeout=20)
    assert asked.returncode == 99
    assert one.wait(20) == 3


def test_one_that_has_read_older_code_is_not_used(stands_by, monkeypatch):
    one = stands_by()
    monkeypatch.setattr(standby, "state", lambda: "of newer code")
    assert standby.run(["0", "7"]) is None
    assert one.wait(20) == 3


def test_files_of_the_code_decide_about_its_state(tmp_path, monkeypatch):
    monkeypatch.setattr(standby, "ROOT", tmp_path)
    (tmp_path / "grader" / "tests").mkdir(parents=True)
    (tmp_path / "grader" / "a.py").write_text("a = 1\n")
    (tmp_path / "grader" / "tests" / "b.py").write_text("b = 1\n")
    before = standby.state()
    (tmp_path / "grader" / "tests" / "b.py").write_text("b = 22\n")
    assert standby.state() == before
    (tmp_path / "grader" / "a.py").write_text("a = 22\n")
    assert standby.state() != before


def test_ctrl_c_reaches_the_run_that_was_handed_over(stands_by):
    one = stands_by()
    asked = ask("60", "7")
    asked.stdout.readline()
    asked.send_signal(signal.SIGINT)
    asked.communicate(timeout=20)
    assert asked.returncode == 130
    assert one.wait(20) == 0


def test_ctrl_c_while_a_run_is_being_sent_ends_both(stands_by, monkeypatch):
    """The run may have begun, and printed, before the call that sends it returns."""
    one = stands_by()
    send = standby._send

    def interrupted(*message):
        send(*message)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(standby, "_send", interrupted)
    try:
        assert standby.run(["60", "7"]) == 130
    except KeyboardInterrupt:
        pytest.fail("the signal reached nobody who forwards it")
    one.wait(20)


def test_a_run_ends_with_whoever_asked_for_it(stands_by):
    one = stands_by()
    asked = ask("60", "7")
    asked.stdout.readline()
    asked.kill()
    asked.communicate()
    assert one.wait(20) == 0


def test_a_run_whose_process_was_killed_is_made_again_by_whoever_asked(stands_by):
    one = stands_by()
    asked = ask("60", "7")
    asked.stdout.readline()
    one.kill()
    asked.communicate(timeout=20)
    assert asked.returncode == 99


def test_it_ends_when_nobody_asks_or_nobody_can(stands_by):
    assert stands_by(idle_s=0.3).wait(20) == 3
    first, second = stands_by(), stands_by()  # which takes the place of the first
    assert first.wait(20) == 3
    standby.place().unlink()
    assert second.wait(20) == 3


@pytest.mark.usefixtures("run_folder")
def test_a_folder_that_others_can_enter_is_refused():
    folder = standby.place().parent
    folder.chmod(0o755)
    with pytest.raises(PermissionError, match="not a folder of this user alone"):
        standby.place()
    assert standby.run(["0", "7"]) is None


def test_without_a_terminal_or_with_a_gpu_none_is_used(monkeypatch):
    monkeypatch.delenv(standby.SWITCH, raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    monkeypatch.setattr(os.path, "exists", lambda _: False)
    assert not standby.is_wanted()
    monkeypatch.setenv(standby.SWITCH, "1")
    assert standby.is_wanted()
    monkeypatch.setattr(os.path, "exists", lambda _: True)
    assert not standby.is_wanted()
