"""What the judge does while a worker does not answer."""

import os
import socket
import time

import pytest

from grader.course.spec import Verdict
from grader.sandbox import limits
from grader.worker.client import Worker, WorkerGoneError
from grader.worker.protocol import HEADER, Kind, pack, unpack_header


class Flooding:
    """Starts processes that write to their standard error without end, and answer nothing."""

    def fork(self, descriptors, _operators):
        pid = os.fork()
        if pid:
            return pid
        os.setsid()
        while True:
            os.write(descriptors[2], b"x" * 4096)


def test_an_answer_is_late_although_the_worker_keeps_writing(monkeypatch):
    monkeypatch.setattr(Worker, "_drain", lambda *_: None)  # there is always more to read
    worker, called = Worker(Flooding(), None), []
    began = time.monotonic()
    with pytest.raises(WorkerGoneError) as gone:
        worker.ask(Kind.LOAD, {}, 2.0, late=(0.3, lambda: called.append(time.monotonic() - began)))
    assert gone.value.verdict is Verdict.TIMEOUT
    assert len(called) == 1
    assert 0.3 <= called[0] < 1.5
    assert not worker.alive


class Answering:
    """Starts a process that answers each frame after 60 ms."""

    def fork(self, descriptors, _operators):
        pid = os.fork()
        if pid:
            return pid
        os.setsid()
        channel = socket.socket(fileno=os.dup(descriptors[0]))
        while True:
            _, block, length = unpack_header(channel.recv(HEADER.size, socket.MSG_WAITALL))
            channel.recv(length, socket.MSG_WAITALL)
            time.sleep(0.06)
            channel.sendall(pack(Kind.DONE, block, {}))


@pytest.mark.parametrize(("every_s", "least", "most"), [(0.2, 3, 6), (30.0, 0, 0)])
def test_limits_are_looked_at_after_long_answers_but_no_more_often_than_asked(
    monkeypatch, every_s, least, most
):
    looks = []
    monkeypatch.setattr(limits, "beyond_limits", lambda *_: looks.append(time.monotonic()))
    worker = Worker(Answering(), None, look_every_s=every_s)
    for _ in range(20):
        worker.ask(Kind.GO, {}, 5.0)
    worker.end()
    assert least <= len(looks) <= most


class Late:
    """Starts a process that leads a group of its own only after half a second."""

    def fork(self, _descriptors, _operators):
        pid = os.fork()
        if pid:
            return pid
        time.sleep(0.5)
        os.setsid()
        time.sleep(60.0)
        os._exit(0)


def test_a_process_that_has_no_group_yet_is_killed():
    worker, began = Worker(Late(), None), time.monotonic()
    worker.kill()
    worker.end()
    assert time.monotonic() - began < 0.4
