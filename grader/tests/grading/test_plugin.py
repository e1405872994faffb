"""Shards cover every test once, and an interrupted run goes on where it stopped."""

import os
import re
import subprocess
import sys
from itertools import groupby
from types import SimpleNamespace

import pytest

from grader.course import catalog
from grader.course.items import CODEGEN, CORRECTNESS, SPEED, graded_items
from grader.course.spec import Verdict
from grader.grading import plugin
from grader.measure.student_loop import END, Terminal
from grader.results.outcome import Outcome
from grader.system import standby
from grader.tests.helpers.commands import python
from grader.tests.helpers.course import solution, swap

TESTS = "import os\n\n\n" + "\n\n".join(
    f"def test_{name}():\n    assert not os.path.exists('broken_{name}')\n" for name in "abcdefg"
)


@pytest.fixture
def run(tmp_path):
    """Runs pytest over seven small tests: names that passed, and the exit code."""
    (tmp_path / "test_small.py").write_text(TESTS)
    (tmp_path / "labs").mkdir()

    def go(*options):
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-v",
            "-p",
            "grader.grading.plugin",
            "-p",
            "no:cacheprovider",
            *options,
        ]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={"PYTHONPATH": str(catalog.ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        return set(re.findall(r"test_(\w) PASSED", done.stdout)), done.returncode

    return go


@pytest.mark.slow
def test_shards_together_run_every_test_once(run):
    parts = [run("--shard", f"{k}/3")[0] for k in (1, 2, 3)]
    assert sorted(name for part in parts for name in part) == list("abcdefg")


@pytest.mark.parametrize("shard", ["4/3", "one"])
def test_a_shard_that_does_not_exist_is_wrong_usage(run, shard):
    assert run("--shard", shard) == (set(), 4)


def test_a_resumed_run_repeats_what_failed_and_nothing_else(run, tmp_path):
    (tmp_path / "broken_c").touch()
    passed, code = run("--resume", "passed")
    assert (passed, code) == (set("abdefg"), 1)
    (tmp_path / "broken_c").unlink()
    assert run("--resume", "passed") == ({"c"}, 0)
    assert run("--resume", "passed") == (set(), 5)


@pytest.mark.slow
def test_a_run_of_several_processes_is_resumed_like_any_other(run, tmp_path):
    (tmp_path / "broken_c").touch()
    assert run("--resume", "passed", "-n", "2")[1] == 1
    (tmp_path / "broken_c").unlink()
    assert run("--resume", "passed") == ({"c"}, 0)


def test_changed_code_makes_every_test_run_again(run, tmp_path):
    assert run("--resume", "passed")[0] == set("abcdefg")
    (tmp_path / "labs" / "lab.py").write_text("x = 1\n")
    assert run("--resume", "passed")[0] == set("abcdefg")


def test_cases_of_a_lab_come_before_its_generated_code_and_timed_shapes_of_all_labs_last():
    labs = sorted(catalog.ROOT.glob("labs/lab[23]_*/lab.py"))
    done = python("-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *labs)
    assert done.returncode == 0, done.stdout
    found = re.findall(r"/lab(\d)_\w+/lab.py::(\w+)/(\w+)/", done.stdout)
    assert len({function for _, function, kind in found if kind == CODEGEN}) == 4
    assert [turn for turn, _ in groupby((lab, kind) for lab, _, kind in found)] == [
        *((lab, kind) for lab in "23" for kind in (CORRECTNESS, CODEGEN)),
        *((lab, SPEED) for lab in "23"),
    ]


def _item(asked):
    item = plugin.LabItem.__new__(plugin.LabItem)
    item.asked = asked
    return item


def test_what_failed_before_comes_first_in_its_exercise_and_is_reported_in_its_place():
    """A fix of the one failing case was seen after all cases that were right before it."""
    entry = catalog.find()[1]
    every = [*graded_items(entry)]
    names = [*dict.fromkeys(one.exercise.name for one in every)]
    later = [one for one in every if one.exercise.name == names[1] and one.kind == CORRECTNESS]
    hook = SimpleNamespace(pytest_grader_failed_before=lambda: {later[5].id, later[9].id})
    config = SimpleNamespace(hook=hook, getoption=lambda _: None, stash={})
    labs = [_item(one) for one in every]
    plugin.pytest_collection_modifyitems(config, labs)
    of_later = [one.asked for one in labs if one.asked.exercise is later[0].exercise]
    assert of_later[:3] == [later[5], later[9], later[0]]
    assert [*dict.fromkeys(one.asked.exercise.name for one in labs)] == names
    assert [*config.stash[plugin.PLACES].values()] == [*range(len(every))]


@pytest.mark.parametrize("verdict", [Verdict.WRONG, Verdict.NOT_STARTED, Verdict.PASS])
def test_a_failure_is_told_at_once_without_the_cause_that_may_change(verdict):
    asked = next(iter(graded_items(catalog.find()[0])))
    outcome = Outcome(verdict, where="out[0] is 1", cause="the mask", hint=2)
    told = []
    hook = SimpleNamespace(pytest_grader_failed=lambda item, facts: told.append((item, *facts)))
    item = _item(asked)
    item.config, item.stash = SimpleNamespace(hook=hook), {plugin.OUTCOME: outcome}
    reporting = plugin.pytest_runtest_makereport(item, SimpleNamespace(when="call"))
    next(reporting)
    report = SimpleNamespace(failed=verdict is not Verdict.PASS)
    with pytest.raises(StopIteration):
        reporting.send(SimpleNamespace(get_result=lambda: report))
    assert report.verdict == verdict.value
    if verdict is not Verdict.WRONG:
        assert not told
        return
    ((of, heading, *facts),) = told
    assert (of, heading) == (asked, f"WRONG  {asked.name}")
    assert facts == ["    first wrong   out[0] is 1"]


def test_a_failure_is_on_the_terminal_before_its_cause(tmp_path):
    """pytest captured what was printed while an item ran: on a terminal the facts came with the report."""
    text = swap(solution(1), "tl.store(out_ptr + offs, x + y", "tl.store(out_ptr + offs, x - y")
    file = tmp_path / "labs" / "lab1_elementwise_add" / "elementwise_add.py"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    options = ["--lab", "1", "--from", file.parents[1], "--results", tmp_path, "--tier", "cpu", "-k", "fp32"]
    command = [sys.executable, "-m", "grader", "grade", *map(str, options)]
    shown = Terminal(command, {**os.environ, standby.SWITCH: "0"})
    shown.wait_for(
        rb"elementwise_add  WRONG/MISMATCH  n=\d+,fp32"
    )  # with its exercise: not yet in the report
    shown.wait_for(rb"first wrong .*(.|\n)*likely cause")
    shown.wait_for(END)
    shown.close()
