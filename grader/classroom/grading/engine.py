"""Grade tasks with Parsl's workers; retry when a worker, a node or the grader fails."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait

from grader.classroom.grading import grade_unit
from grader.classroom.grading import machines as sites
from grader.classroom.grading.grade_unit import Ended, Task
from grader.classroom.grading.progress import Progress
from grader.classroom.records import TaskRecord
from grader.classroom.run_folder import RunFolder

RETRIES = 2
LOOK_S = 1.0


class Engine:
    """A pool of Parsl workers, shared by the self-test and the class; a context manager."""

    def __init__(self, site: sites.Site, tier: str, jobs: int | None, run: RunFolder, token: str):
        self._config = (site, tier, jobs, run, token)
        self._folder = run.engine
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Engine:
        import parsl

        for note in self._folder.glob("waiting-*"):
            note.unlink()
        kernel = self._stack.enter_context(parsl.load(sites.config(*self._config)))
        self._submit = parsl.python_app(grade_unit.run, data_flow_kernel=kernel, executors=["class"])
        return self

    def __exit__(self, *raised) -> None:
        import parsl

        self._stack.__exit__(*raised)
        with contextlib.suppress(parsl.errors.NoDataFlowKernelError):
            parsl.clear()

    def grade(self, tasks: Sequence[Task], progress: Progress) -> Iterator[tuple[Task, TaskRecord]]:
        """Yield each task with its record as it finishes; FAULT after RETRIES retries."""
        waiting: dict[Future, Task] = {self._submit(task): task for task in tasks}
        while waiting:
            done, _ = wait(waiting, LOOK_S, FIRST_COMPLETED)
            progress.look(self._notes())
            for future in done:
                task = waiting.pop(future)
                ended = _ended(future)
                if ended.record:
                    yield task, ended.record
                    continue
                task = dataclasses.replace(task, lost=(*task.lost, ended.lost))
                if len(task.lost) > RETRIES:
                    yield task, grade_unit.give_up(task)
                else:
                    progress.note(f"{task.name}: {ended.lost}; tried again")
                    waiting[self._submit(task)] = task

    def _notes(self) -> list[str]:
        """Return which workers wait for a GPU, and for which process."""
        found = []
        for path in sorted(self._folder.glob("waiting-*")):
            with contextlib.suppress(OSError):
                _, host, gpu = path.name.split("-", 1)[0], *path.name.split("-", 1)[1].rsplit("-", 1)
                found.append(f"GPU {gpu} on {host}: {path.read_text()}; waiting until it is free")
        return found


def _ended(future: Future) -> Ended:
    """Return a worker's outcome; any exception is an infrastructure failure, not a student's error."""
    try:
        return future.result()
    except Exception as error:
        return Ended(
            None, f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
        )
