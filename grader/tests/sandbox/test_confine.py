"""Confinement: what a confined process fails at, what the probe makes of it, and what is left behind it."""

import ctypes
import fcntl
import json
import os
import resource
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from grader.course.spec import Verdict
from grader.sandbox import assurance, confine, landlock, limits, probe, seccomp, system_calls
from grader.system import process_tree
from grader.tests.helpers.submission_texts import ADD7, ADD129, function

ALL = probe.Findings(no_files="", no_calls="", no_user="", refused=probe.NEEDED)


def in_child(act):
    """What a forked process says of `act`: its result, or the name of the error that it raised."""

    def told():
        try:
            return {"said": act()}
        except BaseException as error:
            return {"said": type(error).__name__}

    found = probe.in_child(told)
    return found and found["said"]


def confined(act, processes_allowed=False, tmp_path=None):
    def run():
        write = [str(tmp_path)] if tmp_path else []
        seccomp.no_new_privileges()
        landlock.restrict(*confine.view((), write))
        seccomp.install(processes_allowed)
        return act()

    return in_child(run)


def libc(*arguments):
    """Make a system call by its number; OSError if it fails."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(*map(ctypes.c_long, arguments)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def named_call(name):
    libc(system_calls.REFUSED[name][seccomp.table()], *[0] * 6)


def prctl(option, value):
    libc(system_calls.CHECKED["prctl"][seccomp.table()], option, value, 0, 0, 0)


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
    "a signal to the judge": (lambda: os.kill(os.getppid(), 0), "PermissionError"),
    "a signal to everybody": (lambda: os.kill(-1, 0), "PermissionError"),
    "the judge as owner of a pipe": (
        lambda: fcntl.fcntl(os.pipe()[0], seccomp.F_SETOWN, os.getppid()),
        "PermissionError",
    ),
    "a limit of the judge": (lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CPU), "PermissionError"),
    "the cores of the judge": (lambda: os.sched_setaffinity(os.getppid(), {0}), "PermissionError"),
    "the priority of the judge": (
        lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 1),
        "PermissionError",
    ),
    "the priority of a user": (lambda: os.setpriority(os.PRIO_USER, 0, 1), "PermissionError"),
    "a Unix socket": (lambda: socket.socket(socket.AF_UNIX).close(), "PermissionError"),
    "a pair that can send to a path": (
        lambda: len(socket.socketpair(type=socket.SOCK_DGRAM)),
        "PermissionError",
    ),
    "a server on one end of a pair": (
        lambda: socket.socketpair()[0].bind("\0grader-test"),
        "PermissionError",
    ),
    "a file in memory": (lambda: os.memfd_create("kept"), "OSError"),
    "a watch of a folder": (lambda: named_call("inotify_init1"), "PermissionError"),
    "to outlive the judge": (lambda: prctl(1, 0), "PermissionError"),
}
REFUSED |= {
    f"the call {name}": (lambda name=name: named_call(name), "PermissionError")
    for name, numbers in system_calls.REFUSED.items()
    if numbers[seccomp.table()] is not None
}
PERMITTED = {
    "its own limits": lambda: resource.prlimit(0, resource.RLIMIT_CPU) and None,
    "its own limits by number": lambda: resource.prlimit(os.getpid(), resource.RLIMIT_CPU) and None,
    "its own priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0)),
    "a signal to itself": lambda: os.kill(os.getpid(), 0),
    "a pair of sockets": lambda: [one.send(b"") and one.close() for one in socket.socketpair()] and None,
    "a name for a thread": lambda: prctl(15, ctypes.addressof(ctypes.create_string_buffer(b"name"))) and None,
    "a duplicate of a descriptor": lambda: os.close(os.dup(1)),
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
@pytest.mark.parametrize("name", PERMITTED)
@pytest.mark.parametrize("programs", [False, True], ids=["interpreted", "compiled"])
def test_what_a_process_does_to_itself_is_permitted(name, programs):
    assert confined(PERMITTED[name], programs) is None


@needs_both
def test_the_attempts_of_the_probe_succeed_where_nothing_is_confined():
    """A probe whose attempts fail for another reason would report any machine as safe."""
    judge = subprocess.Popen(["sleep", "60"])
    with judge:
        wanted = confine.Confinement(files=False, calls=False)
        refused, reached = in_child(lambda: probe._try_everything(wanted, judge.pid))
        assert judge.poll() is None
        judge.kill()
    assert set(refused) <= {"privileges", *(["files of the grader"] if os.geteuid() else [])}
    assert all("(" in one for one in reached)


@needs_both
def test_the_probe_of_a_confined_process_is_refused_everything():
    found = in_child(lambda: probe._try_everything(confine.Confinement(programs=True), os.getppid()))
    assert found == [list(probe.NEEDED), []]


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
    code = seccomp.program(column, processes_allowed, 12345)
    assert len(code) % 8 == 0
    length = len(code) // 8
    jumps = [(n, code[8 * n + 2], code[8 * n + 3]) for n in range(length) if code[8 * n] in (0x15, 0x45)]
    assert len(jumps) > 40
    assert all(n + 1 + max(true, false) < length for n, true, false in jumps)


def test_everything_refused_is_level_2():
    found = assurance.assess(ALL)
    assert found.level == 2
    assert found.words.startswith("L2; for L3: ")


@pytest.mark.parametrize("name", probe.NEEDED)
def test_one_thing_within_reach_is_level_1_and_named(name):
    found = assurance.assess(replace(ALL, refused=tuple(one for one in probe.NEEDED if one != name)))
    assert found.level == 1
    assert name in found.words


def test_a_kernel_without_landlock_is_level_1_and_says_so():
    found = assurance.assess(replace(ALL, no_files="this kernel has no Landlock", refused=("the network",)))
    assert (found.level, found.missing[0]) == (1, "this kernel has no Landlock")


@pytest.mark.parametrize("uid", [1000, 0])
def test_without_a_user_of_its_own_the_level_is_1_and_the_command_is_named(uid, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    found = assurance.assess(replace(ALL, no_user=probe.no_user_here(0)))
    assert found.level == 1
    assert ("sudo" if uid else "--userns=host") in found.words


def test_an_interpreter_that_others_cannot_read_is_named_with_the_command(monkeypatch):
    monkeypatch.setattr(os, "setresgid", lambda *_: None)
    monkeypatch.setattr(os, "setresuid", lambda *_: None)
    monkeypatch.setattr(os, "access", lambda path, _: not str(path).startswith(os.path.dirname(os.__file__)))
    with pytest.raises(OSError, match=r"`chmod o\+x .*`"):
        probe._as_user(1)


HELD = {
    "a file in memory": "x = os.memfd_create('x'); os.write(x, block)",
    "a deleted file": "x = tempfile.TemporaryFile(); x.write(block); x.flush()",
    "pages that are given back": (
        "x = mmap.mmap(-1, len(block)); x[:] = block; x.madvise(mmap.MADV_DONTNEED)"
    ),
}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look at mappings")
@pytest.mark.parametrize("how", HELD)
def test_memory_that_no_count_of_a_process_shows_is_counted(how, monkeypatch):
    monkeypatch.setattr(limits, "MOST_SCRATCH", 50 << 20)
    code = f"import mmap, os, tempfile, time; block = bytes(60 << 20); {HELD[how]}; del block; "
    code += "print(1, flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    with child:
        child.stdout.read(1)
        found = limits.beyond_limits(child.pid, children(), None)
        child.kill()
    assert found
    assert found.verdict is Verdict.RESOURCE_LIMIT


def test_the_lent_memory_is_not_held_against_the_worker(monkeypatch):
    monkeypatch.setattr(limits, "MOST_SCRATCH", 50 << 20)
    lent = os.memfd_create("lent")
    os.write(lent, bytes(60 << 20))
    child = subprocess.Popen(["sleep", "60"], pass_fds=[lent])
    with child:
        assert limits.beyond_limits(child.pid, children(), lent) is None
        assert limits.beyond_limits(child.pid, children(), None)
        child.kill()
    os.close(lent)


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
    assert limits.beyond_limits(sleepers, children(), None) is None
    monkeypatch.setattr(limits, limit, value)
    assert limits.beyond_limits(sleepers, children(), None).verdict is verdict


@pytest.mark.parametrize(("limit", "value"), [("MOST_FILES", 2), ("MOST_SCRATCH", 2)])
def test_a_folder_that_fills_up_is_found(tmp_path, monkeypatch, limit, value):
    for name in "abc":
        (tmp_path / name).write_text("x")
    assert limits.too_much_written([tmp_path]) is None
    monkeypatch.setattr(limits, limit, value)
    found = limits.too_much_written([tmp_path])
    assert found.verdict is Verdict.RESOURCE_LIMIT


def test_empty_folders_count_and_are_not_counted_to_their_end(tmp_path, monkeypatch):
    for number in range(9):
        (tmp_path / f"folder{number}" / "below").mkdir(parents=True)
    monkeypatch.setattr(limits, "MOST_FILES", 2)
    found = limits.too_much_written([tmp_path])
    assert found.verdict is Verdict.RESOURCE_LIMIT
    assert "it wrote 3 files and folders with 0 MiB" in found.words


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
