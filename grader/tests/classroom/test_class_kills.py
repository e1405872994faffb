"""A class that is killed ten times ends like one that never was; graded in earnest, so apart from others."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grader.tests.classroom.class_facts import facts
from grader.tests.helpers.commands import python
from grader.tests.helpers.course import ROOT

KILLS = 10
CASES = "correctness and 129"
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]


def command(submissions: Path, out: Path) -> list[object]:
    asked = ["-m", "grader", "class", submissions, "--out", out, "--lab", 1, "--tier", "cpu", "-k", CASES]
    return [*asked, "--no-self-test", "--jobs", 2]


@pytest.fixture
def submissions(tmp_path):
    """A class of solutions, wrong answers and a skeleton."""
    lab = "lab1_elementwise_add"
    files = [ROOT / "solutions" / lab / "elementwise_add.py", ROOT / "labs" / lab / "elementwise_add.py"]
    files += sorted((ROOT / "solutions" / lab / "wrong").glob("*.py"))[:6]
    for number, file in enumerate(files):
        folder = tmp_path / "in" / f"student-{number}"
        folder.mkdir(parents=True)
        shutil.copyfile(file, folder / "elementwise_add.py")
    (tmp_path / "in" / "nothing").mkdir()
    return tmp_path / "in"


def test_a_class_that_is_killed_ten_times_has_the_same_results_but_for_times(submissions, tmp_path):
    chosen = random.Random(1)
    for name in ("whole", "killed"):
        (tmp_path / name / "state").mkdir(parents=True)
        (tmp_path / name / "state" / "secret").write_text("a secret of the course")
    killed = 0
    while killed < KILLS:
        process = subprocess.Popen(
            [sys.executable, *map(str, command(submissions, tmp_path / "killed"))],
            cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(chosen.uniform(0.3, 6.0))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        killed += 1
    for name in ("killed", "whole"):
        done = python(*command(submissions, tmp_path / name))
        assert done.returncode == 0, done.stdout + done.stderr
    assert facts(tmp_path / "killed") == facts(tmp_path / "whole")
    assert len(list((tmp_path / "whole").glob("students/*/lab*/results.json"))) == 8
