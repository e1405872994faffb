"""Who started whom, and the end of what was left behind."""

import os
import subprocess
import sys

import pytest

from grader.system import process_tree
from grader.system.processes import PIPE, Child, run_tool
from grader.tests.helpers.course import ROOT

# A process with two children; the first one has left a child of its own behind.
LEFT = """
import os, time
if os.fork() == 0:
    if os.fork() == 0: time.sleep(60)
    os._exit(0)
os.wait()
if os.fork() == 0: time.sleep(60)
print(flush=True)
time.sleep(60)
"""


@pytest.fixture
def earlier():
    return {one.pid for one in process_tree.children()}


@pytest.fixture
def parent(earlier):
    process_tree.adopt_orphans()
    with Child([sys.executable, "-c", LEFT], stdout=PIPE, own_session=True) as child:
        child.stdout.readline()
        yield child.pid
    process_tree.end_orphans(earlier)


@pytest.fixture
def known(earlier, parent):
    """No orphans: `parent`, and what other tests of this process have running."""
    return {parent, *earlier}


def test_descendants_are_all_that_was_not_left_behind(parent, known):
    (one,) = process_tree.descendants(parent)
    assert (one.parent, one.session) == (parent, parent)
    left = process_tree.orphans(known)
    assert [found.session for found in left] == [parent]
    family = {found.pid for found in process_tree.family(parent, known)}
    assert family == {parent, one.pid, *(found.pid for found in left)}
    process_tree.end_orphans(known)
    assert process_tree.orphans(known) == []
    assert process_tree.descendants(parent) == [one]


def test_a_child_in_our_session_is_no_orphan():
    with Child(["sleep", "60"]) as child:
        assert child.pid in [one.pid for one in process_tree.children()]
        assert child.pid not in [one.pid for one in process_tree.orphans(())]


def test_processes_that_another_user_hides_are_left_out(monkeypatch, parent):
    real = process_tree._stat

    def hidden(pid):  # as with the option hidepid=1 of /proc
        if pid == os.getppid():
            raise PermissionError
        return real(pid)

    monkeypatch.setattr(process_tree, "_stat", hidden)
    found = {one.pid for one in process_tree.running()}
    assert {parent, os.getpid()} <= found
    assert os.getppid() not in found


def test_all_children_end_those_that_were_left_behind_too():
    code = f"""
import subprocess, sys
from grader.system import process_tree
process_tree.adopt_orphans()
child = subprocess.Popen([sys.executable, "-c", {LEFT!r}], stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline()
print(len(process_tree.children()), len(process_tree.descendants(process_tree.os.getpid())))
process_tree.end_children()
print(len(process_tree.children()), len(process_tree.descendants(process_tree.os.getpid())))
"""
    done = run_tool([sys.executable, "-c", code], 60, cwd=ROOT)
    assert done.text.split() == ["2", "3", "0", "0"], done.complaint


def test_a_process_can_end_with_the_one_that_started_it():
    inner = "import time; from grader.system import process_tree; process_tree.die_with_parent()"
    inner += "; print('ready', flush=True); time.sleep(60)"
    outer = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {inner!r}]).wait()"
    with subprocess.Popen([sys.executable, "-c", outer], cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        process.kill()
        assert process.stdout.read() == b""  # nobody holds the pipe any more
