"""Starting programs: what they write, how they end, and that nothing they started goes on."""

import contextlib
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from grader.system.processes import DEVNULL, PIPE, Child, LimitError, Messages, run_tool
from grader.system.python_calls import call_apart, fork_calls

# Starts another program, says so with both pids, and waits for it.
PARENT = """
import os, subprocess, sys
child = subprocess.Popen(["sleep", "60"])
open(sys.argv[1], "w").write(f"{os.getpid()} {child.pid}")
print("it has begun", flush=True)
child.wait()
"""


def program(code: str, *arguments) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]


def wait_until(check, limit_s=10.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not check() and time.monotonic() < deadline:
        time.sleep(0.02)
    return check()


def running(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def test_a_tool_gives_back_its_code_and_what_it_wrote():
    done = run_tool(program("import sys; print(input()); sys.exit('no'); "), 30, given=b"hello\n")
    assert (done.code, done.output, done.errors) == (1, b"hello\n", b"no\n")
    assert (done.text, done.complaint, done.said) == ("hello\n", "no", "hello\nno\n")


def test_a_tool_reads_nothing_where_nothing_is_given():
    assert run_tool(program("import sys; print(repr(sys.stdin.read()))"), 30).output == b"''\n"


def test_what_a_tool_writes_in_another_encoding_is_text_all_the_same():
    code = r"import sys; sys.stdout.buffer.write(b'caf\xe9 10 %\r20 %\r\n')"
    assert run_tool(program(code), 30).text == "caf\ufffd 10 %\n20 %\n"


def test_merged_output_keeps_its_order():
    code = "import sys\nfor n in range(4): print(n, file=(sys.stdout, sys.stderr)[n % 2], flush=True)"
    done = run_tool(program(code), 30, merged=True)
    assert (done.output, done.errors) == (b"0\n1\n2\n3\n", b"")


def test_a_signal_is_a_negative_code():
    assert run_tool(program("import os; os.kill(os.getpid(), 15)"), 30).code == -signal.SIGTERM


@pytest.mark.parametrize("own_session", [False, True])
def test_a_tool_that_takes_too_long_ends_with_all_that_it_started(tmp_path, own_session):
    pids, command = tmp_path / "pids", program(PARENT, tmp_path / "pids")
    with pytest.raises(LimitError, match=r"did not end within 2 s: it has begun$") as found:
        run_tool(command, 2.0, own_session=own_session)
    assert found.match(f"^{Path(sys.executable).name} -c ")
    for pid in map(int, pids.read_text().split()):
        assert wait_until(lambda pid=pid: not running(pid))


def test_an_interrupted_tool_ends_with_all_that_it_started(tmp_path):
    pids = tmp_path / "pids"

    def interrupt():
        wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        # as Ctrl-C does: a signal that ends the wait of the main thread
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run_tool(program(PARENT, pids), 60)
    thread.join()
    for pid in map(int, pids.read_text().split()):
        assert wait_until(lambda pid=pid: not running(pid))


def test_what_cannot_start_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        run_tool([tmp_path / "nothing"], 1)

    def fails():
        resource.setrlimit(resource.RLIMIT_AS, (2, 1))

    with pytest.raises(OSError, match=r"true did not start"):
        run_tool(["/bin/true"], 1, prepare=fails)


def test_a_child_is_waited_for_in_turns_and_killed_at_the_end():
    with Child(["sleep", "60"], own_session=True) as child:
        assert child.wait(0.05) is None
        assert os.getsid(child.pid) == child.pid
    assert child.wait(0) == -signal.SIGKILL
    child.end()  # once more does no harm


def test_a_child_that_is_asked_to_end_may_take_its_time():
    code = "import signal, time\nsignal.signal(15, lambda *_: exit(7))\nprint(flush=True)\ntime.sleep(60)"
    with Child(program(code), stdout=PIPE, stderr=DEVNULL) as child:
        child.stdout.readline()
        child.terminate()
        assert child.wait(10) == 7


def test_messages_are_whole_lines_of_json_whatever_stands_between_them():
    out, into = os.pipe()
    told = Messages(out)
    assert list(told.new()) == []
    os.write(into, b'{"a": 1}\n{"b"')
    assert list(told.new()) == [{"a": 1}]
    os.write(into, b': 2}\nnoise {"c": 3}\n{"d": 4}')
    assert list(told.new(30)) == [{"b": 2}]
    assert not told.ended
    threading.Timer(0.3, os.close, [into]).start()
    assert list(told.new(30)) == []  # the last line was not finished, so it may be half a message
    assert told.ended
    os.close(out)


def test_a_call_apart_returns_and_raises_as_a_call_does():
    assert call_apart(os.path.join, "a", "b") == "a/b"
    assert call_apart(os.getpid) != os.getpid()
    with pytest.raises(ZeroDivisionError):
        call_apart(divmod, 1, 0)


def test_forks_get_what_cannot_be_pickled_and_may_fail(tmp_path):
    def write(number, act):  # local: it cannot be pickled
        (tmp_path / str(number)).write_text(str(act()))

    fork_calls(write, [(1, os.getpid), (2, lambda: sys.exit(3)), (3, os.getpid)])
    assert {path.name for path in tmp_path.iterdir()} == {"1", "3"}
    assert len({path.read_text() for path in tmp_path.iterdir()} | {str(os.getpid())}) == 3
