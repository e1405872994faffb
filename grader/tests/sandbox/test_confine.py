"""Confinement: what a confined process fails at, what the probe makes of it, and what is left behind it."""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from grader.course.spec import Verdict
from grader.sandbox import assurance, confine, landlock, limits, seccomp
from grader.system import process_tree
from grader.tests.helpers.submission_texts import ADD7, ADD129, function

ALL = confine.Findings(no_files="", no_calls="", no_user="", refused=assurance.NEEDED)


def in_child(act):
    """What a forked process says of `act`: its result, or the name of the error that it raised."""

    def told():
        try:
            return {"said": act()}
        except BaseException as error:
            return {"said": type(error).__name__}

    found = confine._in_child(told)
    return found and found["said"]


def confined(act, processes_allowed=False, tmp_path=None):
    def run():
        write = [str(tmp_path)] if tmp_path else []
        seccomp.no_new_privileges()
        landlock.restrict(*confine.view((), write))
        seccomp.install(processes_allowed)
        return act()

    return in_child(run)


needs_both = pytest.mark.skipif(not landlock.abi(), reason="no Landlock in this kernel: nothing to show here")


def read(path):
    with open(path, "rb") as file:
        return len(file.read(1))


REFUSED = {
    "a file of the grader": (lambda: read(__file__), "PermissionError"),
    "the root folder": (lambda: os.listdir("/"), "PermissionError"),
    "the temporary folder": (lambda: os.listdir("/tmp"), "PermissionError"),
    "a new file in it": (lambda: open("/tmp/grader-test-confine", "w").close(), "PermissionError"),
    "the command line of the judge": (lambda: read(f"/proc/{os.getppid()}/cmdline"), "PermissionError"),
    "the environment of the judge": (lambda: read(f"/proc/{os.getppid()}/environ"), "PermissionError"),
    "a socket of the internet": (lambda: socket.socket(socket.AF_INET).close(), "PermissionError"),
    "a netlink socket": (
        lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close(),
        "PermissionError",
    ),
    "a new root": (lambda: os.chroot("/proc"), "PermissionError"),
}
WITHOUT_PROCESSES = {
    "a fork": (os.fork, "BlockingIOError"),
    "a program": (lambda: os.execv("/bin/true", ["true"]), "PermissionError"),
    "a subprocess": (lambda: subprocess.run(["/bin/true"], check=False).returncode, "BlockingIOError"),
    "another mode of a file": (lambda: os.chmod(__file__, 0o644), "PermissionError"),
}


@needs_both
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("programs", [False, True], ids=["interpreted", "compiled"])
def test_what_a_worker_never_needs_is_refused(name, programs):
    act, error = REFUSED[name]
    assert confined(act, programs) == error


@needs_both
@pytest.mark.parametrize("name", WITHOUT_PROCESSES)
def test_a_worker_without_a_compiler_starts_nothing(name):
    act, error = WITHOUT_PROCESSES[name]
    assert confined(act) == error


@needs_both
def test_a_compiler_can_be_started_where_one_is_needed():
    assert confined(lambda: subprocess.run(["/bin/true"], check=False).returncode, True) == 0


@needs_both
def test_the_own_folder_can_be_written_to_and_the_interpreter_read(tmp_path):
    assert confined(lambda: (tmp_path / "x").write_text("abc"), tmp_path=tmp_path) == 3
    assert confined(lambda: read(os.__file__)) == 1


@needs_both
@pytest.mark.skipif(landlock.abi() < 6, reason="this kernel's Landlock does not know signals")
def test_the_judge_gets_no_signal_from_a_worker():
    judge = os.getpid()
    assert confined(lambda: os.kill(judge, 0), True) == "PermissionError"


@needs_both
def test_a_thread_can_still_be_started():
    code = "import threading; t = threading.Thread(target=print); t.start(); t.join()"
    assert confined(lambda: exec(code)) is None  # noqa: S102 - a constant of this test


@pytest.mark.parametrize("column", [0, 1], ids=["x86-64", "arm64"])
@pytest.mark.parametrize("processes_allowed", [False, True])
def test_every_jump_of_the_filter_ends_within_it(column, processes_allowed):
    code = seccomp.program(column, processes_allowed)
    assert len(code) % 8 == 0
    length = len(code) // 8
    jumps = [(n, code[8 * n + 2], code[8 * n + 3]) for n in range(length) if code[8 * n] in (0x15, 0x45)]
    assert len(jumps) > 40
    assert all(n + 1 + max(true, false) < length for n, true, false in jumps)


def test_everything_refused_is_level_2():
    found = assurance.assess(ALL)
    assert found.level == 2
    assert found.words.startswith("L2; for L3: ")


@pytest.mark.parametrize("name", assurance.NEEDED)
def test_one_thing_within_reach_is_level_1_and_named(name):
    found = assurance.assess(replace(ALL, refused=tuple(one for one in assurance.NEEDED if one != name)))
    assert found.level == 1
    assert name in found.words


def test_a_kernel_without_landlock_is_level_1_and_says_so():
    found = assurance.assess(replace(ALL, no_files="this kernel has no Landlock", refused=("the network",)))
    assert (found.level, found.missing[0]) == (1, "this kernel has no Landlock")


def test_a_throwaway_user_is_nobody_that_exists():
    import pwd

    user = assurance.throwaway_user()
    assert user == 0 or user not in {entry.pw_uid for entry in pwd.getpwall()}
    assert user == 0 or os.geteuid() == 0


@pytest.fixture
def sleepers():
    """Three processes below one that leads a session of its own, as a worker does; yields its pid."""
    code = (
        "import os, time\nfor _ in range(2):\n    if os.fork() == 0: time.sleep(60)\n"
        "x = bytearray(60 << 20)\nprint(1, flush=True)\ntime.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    child.stdout.read(1)
    yield child.pid
    os.killpg(child.pid, 9)
    child.wait()
    child.stdout.close()


def children():
    """Workers of other tests in this process count as workers, too."""
    return {one.pid for one in process_tree.children()}


def test_a_worker_is_counted_with_all_that_it_started(sleepers):
    assert len(process_tree.family(sleepers, children())) == 3


@pytest.mark.parametrize(
    ("limit", "value", "verdict"),
    [("MOST_PROCESSES", 2, Verdict.RESOURCE_LIMIT), ("MOST_BYTES", 50 << 20, Verdict.OUT_OF_MEMORY)],
)
def test_a_worker_that_grows_too_large_is_found(sleepers, monkeypatch, limit, value, verdict):
    assert limits.beyond_limits(sleepers, children(), 0) is None
    monkeypatch.setattr(limits, limit, value)
    assert limits.beyond_limits(sleepers, children(), 0).verdict is verdict


@pytest.mark.parametrize(("limit", "value"), [("MOST_FILES", 2), ("MOST_SCRATCH", 2)])
def test_a_folder_that_fills_up_is_found(tmp_path, monkeypatch, limit, value):
    for name in "abc":
        (tmp_path / name).write_text("x")
    assert limits.too_much_written([tmp_path]) is None
    monkeypatch.setattr(limits, limit, value)
    found = limits.too_much_written([tmp_path])
    assert found.verdict is Verdict.RESOURCE_LIMIT


def test_a_link_left_in_the_place_of_the_file_overwrites_nothing(submissions, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    body = f"os.remove(__file__)\nos.symlink({str(victim)!r}, __file__)\nos._exit(0)"
    submissions.grade(1, function(body), ADD7, ADD129)
    assert victim.read_text() == "untouched"


def test_a_pipe_among_the_files_of_the_compiler_blocks_nobody(tmp_path):
    from grader.codegen import kernel_facts

    os.mkfifo(tmp_path / "kernel-1.json")
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="not a regular file of at most"):
        kernel_facts.read_kernels(tmp_path, 90)
    assert time.monotonic() - began < 5


def test_a_link_among_the_files_of_the_compiler_is_not_followed(tmp_path):
    from grader.codegen import kernel_facts

    (tmp_path / "elsewhere").write_text(json.dumps({}))
    (tmp_path / "kernel-1.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RuntimeError, match=r"kernel-1\.json"):
        kernel_facts.read_kernels(tmp_path, 90)


def test_nothing_is_left_of_a_worker_that_forked_twice():
    code = (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    left = os.fork()\n"
        "    if left == 0: time.sleep(60)\n    print(left, flush=True)\n    os._exit(0)"
    )
    process_tree.adopt_orphans()  # as the judge
    subprocess.run([sys.executable, "-c", code], start_new_session=True, check=True)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if process_tree.orphans(()):
            break
    else:
        pytest.fail("the orphan never turned up")
    process_tree.end_orphans(())
    assert process_tree.orphans(()) == []


def test_the_source_of_a_submission_lies_where_its_worker_cannot_write(submissions):
    body = "open(__file__, 'a').write('x')"
    (outcome,) = submissions.grade(1, function(body), ADD7).values()
    assert outcome.verdict is Verdict.CRASHED
    assert "Permission" in outcome.where or "Read-only" in outcome.where or not landlock.abi()
    assert Path(__file__).is_file()
