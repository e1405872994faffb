"""`make watch`: what a save leads to, what is never graded, and that nothing outlives it."""

import hashlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from grader.course import catalog
from grader.course.items import graded_items
from grader.course.spec import Verdict
from grader.grading.options import RunOptions
from grader.grading.progress import ProgressPlugin, Teller
from grader.grading.run_state import RunState
from grader.results import reading
from grader.results.machine import Machine
from grader.results.models import ExerciseResult, ItemResult, LabResult, Results
from grader.student.watch import command
from grader.student.watch.board import Board
from grader.student.watch.poll import QUIET_S, Poller
from grader.student.watch.scores import Scores, Watched
from grader.student.watch.sources import sources_of
from grader.system import process_tree
from grader.tests.helpers.commands import plain_environment, python
from grader.tests.helpers.course import ROOT, copy_course, solution, swap

BROKEN = "def (\n"


# -- what an exercise is made of


def names_of(entry, exercise, source):
    return [path.name for path in sources_of(entry, exercise, source)]


@pytest.mark.parametrize("entry", catalog.find(), ids=lambda entry: entry.folder.name)
def test_the_students_file_comes_first_and_its_lab_is_watched(entry):
    for exercise in entry.lab.exercises:
        names = names_of(entry, exercise, ROOT / "solutions")
        assert names[0] == exercise.file
        assert "lab.py" in names


def test_given_modules_are_watched_by_those_who_import_them_and_through_each_other():
    lab4 = catalog.find()[3]
    made_of = {one.file: set(names_of(lab4, one, ROOT / "solutions")) for one in lab4.lab.exercises}
    assert "rows.py" in made_of["softmax.py"]
    assert "rows.py" in made_of["layer_norm_linear_backward.py"]
    assert {"layer_norm.py", "layer_norm_backward.py"} <= made_of["layer_norm_linear_backward.py"]
    assert "layer_norm.py" not in made_of["dropout.py"]
    for path in sources_of(lab4, lab4.lab.exercises[0], ROOT / "solutions"):
        assert path.name not in lab4.lab.given or path.parent == lab4.folder


def test_a_helper_beside_the_file_is_watched_with_what_it_imports(tmp_path):
    lab1 = catalog.find()[0]
    folder = tmp_path / lab1.folder.name
    folder.mkdir()
    (folder / "elementwise_add.py").write_text("import helper\nfrom torch import nn\n")
    (folder / "helper.py").write_text("from deeper import x\nimport elementwise_add\n")
    (folder / "deeper.py").write_text("x = 1\n")
    own, *others = names_of(lab1, lab1.lab.exercises[0], tmp_path)
    assert own == "elementwise_add.py"
    assert sorted(others) == ["deeper.py", "helper.py", "lab.py"]  # they are in the order of their folders


def test_headers_of_cuda_files_are_watched():
    (entry,) = (one for one in catalog.capstone() if one.folder.name == "cuda-kernels")
    assert "program.cuh" in names_of(entry, entry.lab.exercises[0], ROOT / "labs")


# -- when a save is whole


def test_a_file_is_quiet_again_some_time_after_it_changed(tmp_path):
    path, poller = tmp_path / "a.py", Poller()
    path.write_text("one")
    assert poller.look([path], 0.0)
    assert poller.is_quiet([path], 0.0)
    path.write_text("")  # an editor that truncates first
    assert poller.look([path], 1.0)
    assert not poller.is_quiet([path], 1.0 + QUIET_S / 2)
    path.write_text("two")
    poller.look([path], 1.0 + QUIET_S / 2)
    assert not poller.is_quiet([path], 1.0 + QUIET_S)
    assert not poller.look([path], 1.0 + QUIET_S)
    assert poller.is_quiet([path], 1.0 + 2 * QUIET_S)


def test_a_touched_file_has_not_changed_and_one_with_an_old_time_stamp_has(tmp_path):
    path, poller = tmp_path / "a.py", Poller()
    path.write_text("one")
    os.utime(path, (1, 1))
    poller.look([path], 0.0)
    os.utime(path, (2, 2))
    assert not poller.look([path], 1.0)
    path.write_text("two")  # as long as before
    os.utime(path, (2, 2))
    assert poller.look([path], 2.0)


# -- the loop, with a run that only pretends


class FakeChild:
    """Takes the place of a run; `finish` writes what a run would have found."""

    begun: list = []  # noqa: RUF012 - emptied by the fixture, as is the next
    made: list = []  # noqa: RUF012

    def __init__(self, tier):
        assert tier == "cpu"
        self.code, self.ended, self.errors = None, False, ""
        self.state, self.seconds = RunState(), 0.0
        FakeChild.made.append(self)

    def begin(self, options):
        self.keyword = options.keyword
        FakeChild.begun.append(self)

    def poll(self):
        return self.code

    def end(self):
        self.ended = True


class Watcher:
    """The loop over copied labs, on a clock of its own."""

    def __init__(self, root, number):
        self.source, self.results, self.now = root / "labs", root / "results", 0.0
        self.results.mkdir()
        (self.entry,) = (one for one in catalog.find(self.source) if one.number == number)
        exercises = self.entry.lab.exercises
        self.scores = Scores([Watched(self.entry, exercise, self.source) for exercise in exercises])
        self.out = io.StringIO()
        board = Board(Console(file=self.out, width=200), "watching")
        options = RunOptions(str(number), str(self.source), "cpu", results=self.results)
        self.loop = command.Loop(options, self.scores, board)

    def file(self, name):
        return self.entry.folder / name

    def turn(self, seconds=0.0):
        self.now += seconds
        self.loop.turn(self.now)

    def settle(self):
        self.turn()
        self.turn(2 * QUIET_S)

    def finish(self, names=None, files=None):
        """The run that goes on ends, with every case of these exercises right."""
        exercises = [one for one in self.entry.lab.exercises if names is None or one.name in names]
        points = {"points": 1, "graded_points": 1, "not_graded_points": 0, "max_points": 1}
        item = ItemResult(
            id="a", kind="correctness", name="a", verdict=Verdict.PASS, points=1, max_points=1, seconds=0
        )
        graded = [
            ExerciseResult(name=one.name, file=one.file, file_sha256=self.digest(one, files), items=[item])
            for one in exercises
        ]
        lab = LabResult(folder=self.entry.folder.name, number=1, title="", exercises=graded, **points)
        machine = Machine(gpu=None, platform="", python="", torch="", triton="", numpy="")
        results = Results(
            grader="", date="", seconds=0, command="", tier="cpu", source="", seed=0, arch=90, assurance="",
            machine=machine, labs=[lab], **points,
        )  # fmt: skip
        part = self.results / "part"
        part.write_text(results.model_dump_json())
        part.replace(self.results / "results.json")
        FakeChild.begun[-1].code = 0
        self.turn()

    def digest(self, exercise, files):
        return hashlib.sha256(((files or self.entry.folder) / exercise.file).read_bytes()).hexdigest()


@pytest.fixture
def watcher(tmp_path, monkeypatch):
    def start(number):
        shutil.copytree(ROOT / "labs", tmp_path / "labs", ignore=shutil.ignore_patterns("__pycache__"))
        return Watcher(tmp_path, number)

    monkeypatch.setattr(command, "Child", FakeChild)
    FakeChild.begun.clear()
    FakeChild.made.clear()
    return start


def test_all_is_graded_at_first_and_once(watcher):
    one = watcher(2)
    one.turn()
    assert len(FakeChild.begun) == 1
    assert FakeChild.begun[0].keyword == ""
    one.finish()
    one.settle()
    assert len(FakeChild.begun) == 1
    assert all(map(one.scores.is_fresh, one.scores.watched))
    assert str(one.scores.total.earned) == "3"


def test_a_save_grades_only_the_exercises_of_its_file(watcher):
    one = watcher(4)
    one.turn()
    one.finish()
    one.file("rms_norm_backward.py").write_text("# saved\n")
    one.settle()
    assert FakeChild.begun[-1].keyword == "(rms_norm_backward/ or rms_norm/)"
    fresh = [watched.exercise.file for watched in one.scores.watched if one.scores.is_fresh(watched)]
    assert "rms_norm_backward.py" not in fresh
    assert len(fresh) == len(one.scores.watched) - 2
    one.finish({"rms_norm_backward", "rms_norm"})
    assert all(map(one.scores.is_fresh, one.scores.watched))
    assert len(one.scores.scores) == len(one.scores.watched)  # what was not graded again is still there


def test_a_shared_module_grades_all_that_import_it(watcher):
    one = watcher(4)
    importing = {"softmax.py": "rows", "rms_norm.py": "rows", "rms_norm_backward.py": "rms_norm"}
    for name in {exercise.file for exercise in one.entry.lab.exercises}:
        one.file(name).write_text(f"import {importing.get(name, 'math')}\n")
    one.turn()
    one.finish()
    one.file("rows.py").write_text("# saved\n")
    one.settle()
    graded = FakeChild.begun[-1].keyword
    assert all(name in graded for name in ("fused_softmax/", "rms_norm_forward/", "rms_norm/"))
    assert not any(name in graded for name in ("layer_norm/", "dropout/"))


def test_a_save_during_a_run_stops_it_and_starts_anew(watcher):
    one = watcher(4)
    one.turn()
    one.finish()
    one.file("dropout.py").write_text("# first\n")
    one.settle()
    first = FakeChild.begun[-1]
    one.file("softmax.py").write_text("# second\n")
    one.turn()
    assert first.ended
    assert len(FakeChild.begun) == 2  # the second save may not be whole yet
    one.turn(2 * QUIET_S)
    assert all(name in FakeChild.begun[-1].keyword for name in ("dropout/", "fused_softmax/"))
    assert "saved again: the run was stopped" in one.out.getvalue()


def test_a_half_written_file_is_never_graded(watcher):
    one = watcher(1)
    one.turn()
    one.finish()
    text = solution(1)
    for part in range(1, 6):
        one.file("elementwise_add.py").write_text(text[: len(text) * part // 5])
        one.turn(QUIET_S / 2)
    assert len(FakeChild.begun) == 1
    one.turn(QUIET_S)
    assert len(FakeChild.begun) == 2
    assert "SyntaxError" not in one.out.getvalue()


def test_an_editor_that_writes_beside_and_renames_makes_one_run(watcher, tmp_path):
    one = watcher(1)
    one.turn()
    one.finish()
    for text in ("# first\n", "# second\n"):
        beside = tmp_path / "4913"
        beside.write_text(text)
        one.file("elementwise_add.py").rename(one.file("elementwise_add.py~"))  # a backup, as vim keeps it
        one.turn(QUIET_S / 4)
        beside.replace(one.file("elementwise_add.py"))
        one.settle()
        one.finish()
    assert len(FakeChild.begun) == 3
    assert "missing" not in one.out.getvalue()


def test_a_deleted_file_is_waited_for_and_the_same_text_is_not_graded_twice(watcher):
    one = watcher(1)
    one.turn()
    one.finish()
    text = one.file("elementwise_add.py").read_text("utf-8")
    one.file("elementwise_add.py").unlink()
    one.settle()
    assert "elementwise_add.py is missing: waiting for it" in one.out.getvalue()
    assert len(FakeChild.begun) == 1
    assert not one.scores.is_fresh(one.scores.watched[0])
    one.file("elementwise_add.py").write_text(text)
    one.settle()
    assert one.scores.is_fresh(one.scores.watched[0])


def test_a_syntax_error_is_shown_without_a_run_and_the_last_score_stays(watcher):
    one = watcher(1)
    one.turn()
    one.finish()
    one.file("elementwise_add.py").write_text("import math\n" + BROKEN)
    one.settle()
    assert "SyntaxError: invalid syntax  at elementwise_add.py:2  def (" in one.out.getvalue()
    assert len(FakeChild.begun) == 1
    assert str(one.scores.total.earned) == "1"
    assert not one.scores.is_fresh(one.scores.watched[0])
    one.file("elementwise_add.py").write_text("import math\n")
    one.settle()
    assert len(FakeChild.begun) == 2


def test_a_syntax_error_in_one_file_leaves_the_others_graded(watcher):
    one = watcher(4)
    one.file("dropout.py").write_text(BROKEN)
    one.turn()
    graded = FakeChild.begun[0].keyword
    assert "softmax" in graded
    assert "dropout" not in graded


def test_results_of_other_files_are_not_taken_over(watcher):
    one = watcher(1)
    one.turn()
    one.finish(files=ROOT / "solutions" / "lab1_elementwise_add")
    assert one.scores.scores == {}


def test_a_run_that_graded_nothing_says_why_and_is_not_repeated(watcher):
    one = watcher(1)
    one.turn()
    FakeChild.begun[0].code, FakeChild.begun[0].errors = 2, "nothing matches -k 'x'"
    one.settle()
    one.settle()
    assert "nothing was graded: nothing matches -k 'x'" in one.out.getvalue()
    assert len(FakeChild.begun) == 1


def test_the_screen_marks_a_score_of_an_earlier_save(watcher):
    one = watcher(1)
    one.turn()
    one.finish()
    one.file("elementwise_add.py").write_text("# saved\n")
    one.settle()
    out = io.StringIO()
    console = Console(file=out, width=140, height=40, force_terminal=True)
    with Board(console, "watching") as board:
        child = SimpleNamespace(state=RunState(items=26, done=3), seconds=4.2)
        board.show(command.Text("grading"), [], child, one.scores)
    assert "00, an earlier save" in re.sub(r":\d\d,", ":00,", out.getvalue())
    assert "score 1 / 1, partly from an earlier save" in out.getvalue()
    assert "3/26  4 s" in re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())


# -- the real thing


def test_the_first_failure_is_on_the_screen_before_the_run_ends():
    """The screen showed the failures of the save before until all cases had run."""
    told = os.memfd_create("told")
    teller = Teller(os.dup(told))
    teller.begin(26)
    plugin = ProgressPlugin(teller)
    item = next(iter(graded_items(catalog.find()[0])))
    plugin.pytest_grader_failed(item, ["WRONG  n=7,fp32", "    first wrong   out[6] is 0"])
    teller.end()
    os.lseek(told, 0, os.SEEK_SET)
    *_, last = os.read(told, 10_000).decode().splitlines()
    os.close(told)
    console = Console(file=io.StringIO(), width=80, height=24, force_terminal=True)
    scores = SimpleNamespace(watched=(), scores={}, points={}, failures=list)
    child = SimpleNamespace(state=RunState.model_validate_json(last), seconds=1)
    with Board(console, "watching") as board:
        board.show(command.Text("grading"), [], child, scores)
    shown = console.file.getvalue()
    assert "WRONG  n=7,fp32" in shown
    assert "out[6] is 0" in shown


def test_the_next_run_is_prepared_while_nothing_runs_and_takes_the_next_save(watcher):
    one = watcher(1)
    one.settle()
    assert FakeChild.made == FakeChild.begun
    one.finish()
    one.turn()
    one.turn()
    (first, prepared) = FakeChild.made
    assert FakeChild.begun == [first]
    assert not prepared.ended
    one.file("elementwise_add.py").write_text(solution(1), "utf-8")
    one.settle()
    assert FakeChild.begun == FakeChild.made == [first, prepared]
    one.finish()
    one.turn()
    one.loop.end()
    assert [child.ended for child in FakeChild.made] == [True, True, True]


def test_a_prepared_run_that_has_ended_is_replaced(watcher):
    one = watcher(1)
    one.settle()
    one.finish()
    one.turn()
    FakeChild.made[-1].code = 1  # it was killed, perhaps
    one.file("elementwise_add.py").write_text(solution(1), "utf-8")
    one.settle()
    assert FakeChild.made[1].ended
    assert FakeChild.begun[-1] is FakeChild.made[2]


def test_the_selection_is_what_pytest_understands():
    arguments = ["-m", "pytest", "--collect-only", "-q", "labs/lab2_online_softmax", "-k", "(softmax/)"]
    items = [line for line in python(*arguments).stdout.splitlines() if "::" in line]
    assert items
    assert [line for line in items if "::softmax/" not in line] == []


def start(course, **more):
    arguments = [sys.executable, "-u", "-B", "-m", "grader", "watch", "--lab", "1", "--tier", "cpu"]
    environment = plain_environment(**more)
    return subprocess.Popen(
        arguments, cwd=course, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip


def read_until(watching, words, limit_s=120.0):
    lines, deadline = [], time.monotonic() + limit_s
    while time.monotonic() < deadline:
        line = watching.stdout.readline()
        lines.append(line)
        if words in line:
            return lines
        assert line, "it ended: " + "".join(lines)
    raise AssertionError("".join(lines))


@pytest.mark.slow
def test_a_save_is_graded_and_the_results_are_those_of_grade(tmp_path):
    course = copy_course(tmp_path / "course")
    watching = start(course)
    try:
        read_until(watching, "waiting for a save")
        (course / "labs/lab1_elementwise_add/elementwise_add.py").write_text(solution(1), "utf-8")
        lines = read_until(watching, "waiting for a save")
    finally:
        watching.send_signal(signal.SIGINT)
        rest = watching.communicate(timeout=30)[0]
    assert watching.returncode == 0
    results = reading.read(course / "results" / "results.json")
    (exercise,) = catalog.find()[0].lab.exercises
    here = sum(case.dtype != "bf16" for case in exercise.cases)  # which the interpreter has wrong
    assert 20 < here < len(exercise.cases)
    assert results.points == pytest.approx(here / len(exercise.cases) * exercise.points, abs=1e-5)
    score = f"score {results.points:.2f} / {results.points:.2f}, {100 - results.points:.2f} not graded"
    assert score in lines[-1]
    assert rest.strip().endswith(f"last {score}")
    assert (course / "results" / "summary.md").is_file()
    assert "--tell" not in results.command


@pytest.mark.parametrize(
    "how",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, marks=pytest.mark.nightly),
    ],
    ids=lambda one: one.name,
)
def test_the_end_in_the_middle_of_a_run_leaves_no_process_and_no_folder(tmp_path, how):
    process_tree.adopt_orphans()  # what is left behind would come to us
    course = copy_course(tmp_path / "course")
    endless = swap(
        solution(1), "    if out is None:\n", "    while True:\n        pass\n    if out is None:\n"
    )
    (course / "labs/lab1_elementwise_add/elementwise_add.py").write_text(endless, "utf-8")
    mine = {one.pid for one in process_tree.children()}
    temporary = Path(tempfile.mkdtemp(prefix="watch-test-"))
    temporary.chmod(0o711)  # workers run as users of their own
    watching = start(course, TMPDIR=str(temporary))
    read_until(watching, "grading what was saved")
    family = {watching.pid}
    deadline = time.monotonic() + 60
    while len(family) < 5 and time.monotonic() < deadline:  # the run, its warm parents, a worker
        family = {one.pid for one in process_tree.family(watching.pid, mine)}
        time.sleep(0.1)
    watching.send_signal(how)
    out = watching.communicate(timeout=30)[0]
    assert watching.returncode == 0, out
    assert out.strip().endswith("last score: none yet")
    left = {one.pid for one in process_tree.running()}
    assert len(family) >= 5
    assert family & left == set()
    assert {one.pid for one in process_tree.children()} - mine == set()
    assert list(temporary.iterdir()) == []
    temporary.rmdir()
    assert not (course / "results" / "results.json").exists()
