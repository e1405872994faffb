"""What the judge does while a worker does not answer."""

import os
import time

import pytest

from grader.course.spec import Verdict
from grader.worker.client import Worker, WorkerGoneError
from grader.worker.protocol import Kind


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
