"""Start the processes of timed shapes side by side, before the first of these shapes is timed.

Each creates a CUDA context, which takes a part of a second: while cases run it costs no time. No line of a
file runs in a process before its shape is timed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TypeAlias

import psutil

from grader.course.items import CaseItem
from grader.worker.submission_worker import SubmissionWorker, close_all

# Processes that wait take at most one part in so many of a GPU's free memory, each about this much.
SHARE, CONTEXT_BYTES = 4, 600 << 20
HOST_BYTES = 1 << 30  # of host memory, with a CUDA context
Shape: TypeAlias = tuple[str, str, str]  # the lab's folder, the exercise and the shape


def most_waiting(free_bytes: int) -> int:
    """Return how many processes may wait at once on this machine, with so many bytes free on its GPU."""
    on_host = psutil.virtual_memory().available // 2 // HOST_BYTES
    return max(1, min(free_bytes // SHARE // CONTEXT_BYTES, on_host, len(os.sched_getaffinity(0)) - 1))


class TimedWorkers:
    """The worker of each timed shape; it ends with its shape. `make` creates one, without a process."""

    def __init__(self, most: int, make: Callable[[CaseItem], SubmissionWorker]):
        self._most, self._make = most, make
        self._workers: dict[Shape, SubmissionWorker] = {}

    def of(self, item: CaseItem) -> SubmissionWorker:
        """Return the worker of a shape."""
        shape = (str(item.entry.folder), item.exercise.name, item.name)
        if shape not in self._workers:
            self._workers[shape] = self._make(item)
        return self._workers[shape]

    def begin(self, coming: Iterable[CaseItem]) -> None:
        """Start the processes of shapes that have none, as many as may wait at once."""
        left = self._most - sum(worker.is_running for worker in self._workers.values())
        for item in coming:
            worker = self.of(item)
            if left > 0 and not worker.is_running:
                worker.begin()
                left -= 1

    def set_up(self) -> None:
        """Wait until no process sets itself up any more: beside one no block may be timed."""
        for worker in self._workers.values():
            if worker.is_setting_up:
                worker.set_up()

    def close(self) -> None:
        """End the processes."""
        close_all(self._workers.values())
