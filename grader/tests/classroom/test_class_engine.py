"""A class is graded by workers that may be lost, stopped and started again; a fake grader keeps it short."""

import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from grader.classroom import records
from grader.classroom.grading import gpu_idle, grade_unit, plan, run_lock, supervise
from grader.classroom.intake import expected_files
from grader.classroom.records import Receipt, RunRecord, State, TaskRecord
from grader.classroom.run_folder import RunFolder, UnitFolder
from grader.system.gpu_lock import NOTE, GpuLock
from grader.system.locks import is_held
from grader.tests.classroom import fake_grader
from grader.tests.classroom.class_facts import facts
from grader.tests.helpers.course import ROOT

UNIT = expected_files.units()[0].unit
FAKE = Path(fake_grader.__file__)


@pytest.fixture
def counts(tmp_path, monkeypatch):
    """A folder with one file for each grading that the fake grader began."""
    folder = tmp_path / "counts"
    folder.mkdir()
    monkeypatch.setenv(fake_grader.COUNT, str(folder))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return folder


def lay_out(folder: Path, **students: str) -> Path:
    for student, word in students.items():
        path = folder / student / "elementwise_add.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(word)
    return folder


@pytest.fixture
def task(tmp_path, counts):
    """Makes the task of a student whose file holds a word for the fake grader; its command holds the lock."""
    run = RunFolder(tmp_path / "out")
    with run_lock.Lock(run.lock) as lock:

        def make(word: str, limit_s: float = 30.0) -> grade_unit.Task:
            files = run.student("ada").files
            path = files / UNIT.name / "elementwise_add.py"
            path.parent.mkdir(parents=True)
            path.write_text(word)
            assert counts.is_dir()
            return grade_unit.Task(
                run=str(run.root), token=lock.token, student="ada", unit=UNIT, blind=False, seed=7, attempt=1,
                fingerprint="f", tier="cpu", keyword=None, hidden=None, limit_s=limit_s, files=str(files),
                folder=str(run.student("ada").unit(UNIT.name).root), command=(sys.executable, str(FAKE)),
            )  # fmt: skip

        yield make


def gone(pid: int, within_s: float = 5.0) -> bool:
    """Whether a process is no more, or only waits to be reaped."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def scratch_of(task: grade_unit.Task) -> list[Path]:
    digest = hashlib.sha256(task.run.encode()).hexdigest()[:12]
    return list(Path(tempfile.gettempdir()).glob(f"grader-class-{digest}-*"))


def test_a_grading_leaves_results_log_and_record_and_no_scratch(task):
    one = task("right")
    ended = grade_unit.run(one)
    place = UnitFolder(Path(one.folder))
    assert (ended.record.state, ended.record.exit_code, ended.lost) == (State.GRADED, 0, "")
    assert records.read(place.task, TaskRecord) == ended.record
    assert plan.done(one)
    assert place.log.read_text() == "ada: right\n"
    assert not scratch_of(one)


def test_a_grading_past_its_limit_ends_with_all_that_it_started(task, counts):
    one = task("hangs", limit_s=3.0)
    began = time.monotonic()
    ended = grade_unit.run(one)
    assert ended.record.state is State.TIMEOUT
    assert time.monotonic() - began < 15
    assert gone(int((counts / "left-alone").read_text()))
    assert plan.done(one)  # it is not graded again
    assert not scratch_of(one)


@pytest.mark.parametrize(
    ("word", "lost"),
    [
        ("killed", "by signal 9"),
        ("crashes", "exit code 1: RuntimeError: the grader has a bug"),
        ("fault", "at fault"),
    ],
)
def test_a_loss_is_no_verdict(task, word, lost):
    one = task(word)
    ended = grade_unit.run(one)
    assert ended.record is None
    assert lost in ended.lost
    assert not plan.done(one)


def test_what_was_lost_too_often_stays_open_and_keeps_the_graders_own_words(task):
    one = task("fault")
    lost = grade_unit.run(one).lost
    record = grade_unit.give_up(dataclasses.replace(one, lost=(lost,) * 3))
    assert (record.state, len(record.lost), record.results_sha256 is not None) == (State.FAULT, 3, True)
    assert not plan.done(one)


def test_nothing_is_written_for_a_command_that_has_ended(task):
    one = dataclasses.replace(task("right"), token="of an earlier command")
    assert grade_unit.run(one).lost == "its command has ended"
    assert not Path(one.folder).exists()


def test_a_results_file_that_was_changed_is_graded_again(task):
    one = task("wrong")
    grade_unit.run(one)
    place = UnitFolder(Path(one.folder))
    place.results.write_text(place.results.read_text().replace("WRONG", "PASS"))
    assert not plan.done(one)


def test_a_second_command_on_the_same_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(run_lock, "PATIENCE_S", 0.2)
    path = RunFolder(tmp_path).lock
    with run_lock.Lock(path) as lock:
        assert is_held(path, lock.token)
        with pytest.raises(run_lock.BusyError, match="another command is using this folder"):
            run_lock.Lock(path).__enter__()
    assert not is_held(path, lock.token)


def test_a_gpu_in_use_by_others_is_waited_for_with_a_note(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_idle, "ASK_AGAIN_S", 0.01)
    note, seen = tmp_path / "engine" / "waiting-node-0", []
    answers = iter(["in use by process 4711", "in use by process 4711", ""])

    def by():
        seen.append(note.read_text() if note.exists() else "")
        return next(answers)

    assert gpu_idle.wait(note, lambda: True, by)
    assert seen == ["", "in use by process 4711", "in use by process 4711"]
    assert not note.exists()


def test_a_gpu_that_another_grading_has_is_not_in_use_by_others(tmp_path, monkeypatch):
    monkeypatch.setattr(grade_unit.gpu, "find", lambda: (SimpleNamespace(uuid_hash=tmp_path.name), ""))
    monkeypatch.setattr(gpu_idle, "used_by", lambda: "in use by process 4711")
    with GpuLock(tmp_path.name):
        assert grade_unit._used_by_others() == ""
    assert grade_unit._used_by_others() == "in use by process 4711"


@pytest.mark.parametrize(("waits", "code"), [(True, 0), (False, supervise.OVER)])
def test_no_time_counts_while_a_grading_waits_for_its_gpu(tmp_path, waits, code):
    note = tmp_path / NOTE
    note.write_text("" if waits else "0.5")
    late = f"import time; time.sleep(3); open({str(note)!r}, 'w').write('3')"
    command = [sys.executable, "-m", "grader.classroom.grading.supervise", "1.5", sys.executable, "-c", late]
    environment = {**os.environ, "GRADER_SCRATCH": str(tmp_path)}
    ended = subprocess.run(command, cwd=ROOT, env=environment, timeout=60, check=False)
    assert ended.returncode == code


def test_a_command_that_ends_meanwhile_is_no_reason_to_wait_on(tmp_path):
    assert not gpu_idle.wait(tmp_path / "waiting", lambda: False, lambda: "in use by process 4711")


def run_class(submissions: Path, out: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, str(FAKE), "class", str(submissions), str(out)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def states(out: Path) -> dict[str, str]:
    run = RunFolder(out)
    students = records.read(run.run, RunRecord).students
    return {
        one: records.read(run.student(one).unit(UNIT.name).task, TaskRecord).state.value for one in students
    }


@pytest.mark.slow
def test_a_class_ends_with_one_record_for_everybody_and_only_losses_are_tried_again(tmp_path, counts):
    words = {"a": "right", "b": "wrong", "c": "killed-once", "d": "fault-once", "e": "crashes"}
    submissions = lay_out(tmp_path / "in", **words)
    (submissions / "f").mkdir()
    done = run_class(submissions, tmp_path / "out")
    assert done.returncode == 3, done.stdout + done.stderr  # for e, whose points stay open
    assert list(states(tmp_path / "out").values()) == ["GRADED"] * 4 + ["FAULT", "MISSING"]
    assert "e/lab1_elementwise_add" in done.stdout.splitlines()[-1]
    run = RunFolder(tmp_path / "out")
    lost = {one: records.read(run.student(one).unit(UNIT.name).task, TaskRecord).lost for one in "abcde"}
    blind = set(json.loads(run.drift.read_text())["regraded"])
    tried = {one: len(list(counts.glob(f"{one}-*"))) for one in words}
    assert [len(lost[one]) for one in "abe"] == [0, 0, 3]
    assert tried["b"] == 1 + ("b/lab1_elementwise_add" in blind)  # a wrong answer is no loss
    assert tried["e"] >= 3
    for one in "abcd":
        assert records.read(run.student(one).unit(UNIT.name).receipt, Receipt).points == (one != "b") * 100


@pytest.mark.slow
@pytest.mark.usefixtures("counts")
def test_all_that_stays_open_stands_in_the_last_line(tmp_path):
    done = run_class(lay_out(tmp_path / "in", e="crashes"), tmp_path / "out")  # one student: drawn blind, too
    for blind in (False, True):
        place = RunFolder(tmp_path / "out").student("e").unit(UNIT.name, blind)
        assert records.read(place.task, TaskRecord).state is State.FAULT
    last = done.stdout.splitlines()[-1]
    assert last == f"open after a fault of the machine: e/{UNIT.name}, e/{UNIT.name}/again; run it again"


@pytest.mark.nightly
@pytest.mark.usefixtures("counts")
def test_a_killed_command_goes_on_where_it_stopped_and_ends_as_if_nothing_had_happened(tmp_path):
    submissions = lay_out(tmp_path / "in", **dict.fromkeys("abcdefgh", "sleeps"), i="wrong")
    out, whole = tmp_path / "out", tmp_path / "whole"
    for folder in (out, whole):
        (folder / "state").mkdir(parents=True)
        (folder / "state" / "secret").write_text("a secret of the course")
    command = [sys.executable, str(FAKE), "class", str(submissions), str(out)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(list(out.glob("students/*/lab*/task.json"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    first = {path: path.stat().st_ino for path in out.glob("students/*/lab*/task.json")}
    assert 3 <= len(first) < 9
    assert run_class(submissions, out).returncode == 0
    assert {path: path.stat().st_ino for path in first} == first  # graded once
    assert run_class(submissions, whole).returncode == 0
    assert facts(out) == facts(whole)
    assert len(facts(out)) > 3 * 9
