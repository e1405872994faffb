"""Ctrl-C ends a graded run at once, says so in one line, and leaves neither a process nor a folder."""

import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

from grader.system import process_tree
from grader.system.exit_codes import INTERRUPTED
from grader.tests.helpers.commands import plain_environment
from grader.tests.helpers.course import ROOT, copy_course, solution, swap

LIMIT_S = 1.0


def start(course, tmp_path):
    tmp_path.chmod(0o711)  # workers run as users of their own
    scratch = tmp_path / "scratch"
    scratch.mkdir(mode=0o711)
    command = [sys.executable, "-m", "grader", "grade", "--lab", "1", "--tier", "cpu"]
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        command, cwd=course, env=plain_environment(TERM="xterm", COLUMNS="120", TMPDIR=str(scratch)),
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    return run, ours, scratch


def shown_by(terminal, wait_s):
    """What a terminal shows until nothing more comes for so long, or until it is closed."""
    out = b""
    while select.select([terminal], [], [], wait_s)[0]:
        try:
            data = os.read(terminal, 65536)
        except OSError:
            break
        out += data
    return out.decode(errors="replace")


@pytest.mark.parametrize("processes", [1, pytest.param(4, marks=pytest.mark.slow)], ids=["imports", "a case"])
def test_it_ends_within_a_second_with_one_line(tmp_path, processes):
    process_tree.adopt_orphans()  # what is left behind would come to us
    course = copy_course(tmp_path / "course")
    endless = swap(
        solution(1), "    if out is None:\n", "    while True:\n        pass\n    if out is None:\n"
    )
    (course / "labs/lab1_elementwise_add/elementwise_add.py").write_text(endless, "utf-8")
    (course / "results").mkdir()
    (course / "results" / "results.json").write_text("{}")
    mine = {one.pid for one in process_tree.children()}
    run, terminal, scratch = start(course, tmp_path)
    family, deadline = set(), time.monotonic() + 40
    try:
        assert select.select([terminal], [], [], 20)[0]
        while len(family) < processes and time.monotonic() < deadline:
            time.sleep(0.1)
            while select.select([terminal], [], [], 0)[0]:  # a full one would stop the run
                os.read(terminal, 65536)
            family = {one.pid for one in process_tree.family(run.pid, mine)}
        began = time.monotonic()
        run.send_signal(signal.SIGINT)
        rest = shown_by(terminal, LIMIT_S)
        assert run.wait(20) == INTERRUPTED
        assert time.monotonic() - began < 2 * LIMIT_S  # one of them is waited for above
    finally:
        run.kill()
        run.wait()
        os.close(terminal)
    assert len(family) >= processes
    assert rest.count("stopped by Ctrl-C") == 1
    assert "Traceback" not in rest
    assert family & {one.pid for one in process_tree.running()} == set()
    assert {one.pid for one in process_tree.children()} - mine == set()
    assert list(scratch.iterdir()) == []
    assert (course / "results" / "results.json").read_text() == "{}"


def test_the_first_imports_end_with_a_line_and_no_traceback():
    run = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "grader", "list"], cwd=ROOT,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    for line in run.stderr:
        if "click" in line:  # among the first that the commands import
            run.send_signal(signal.SIGINT)
            break
    rest = run.communicate(timeout=20)[1]
    assert run.returncode == INTERRUPTED
    assert "stopped by Ctrl-C" in rest
    assert "Traceback" not in rest
