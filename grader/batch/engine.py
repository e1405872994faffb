"""Have tasks graded by Parsl's workers; what a worker, a node or the grader loses is tried again."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait

from grader.batch import site as sites
from grader.batch import work
from grader.batch.layout import RunFolder
from grader.batch.models import TaskRecord
from grader.batch.progress import Progress
from grader.batch.work import Ended, Task

RETRIES = 2
LOOK_S = 1.0


class Engine:
    """Workers that are kept between the self-test and the class; from `with` to its end."""

    def __init__(self, site: sites.Site, tier: str, jobs: int | None, run: RunFolder, token: str):
        self._config = (site, tier, jobs, run, token)
        self._folder = run.engine
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Engine:
        import parsl

        for note in self._folder.glob("waiting-*"):
            note.unlink()
        kernel = self._stack.enter_context(parsl.load(sites.config(*self._config)))
        self._submit = parsl.python_app(work.run, data_flow_kernel=kernel, executors=["class"])
        return self

    def __exit__(self, *raised) -> None:
        import parsl

        self._stack.__exit__(*raised)
        with contextlib.suppress(parsl.errors.NoDataFlowKernelError):
            parsl.clear()

    def grade(self, tasks: Sequence[Task], progress: Progress) -> Iterator[tuple[Task, TaskRecord]]:
        """Each task with its record, as they end."""
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
                    yield task, work.give_up(task)
                else:
                    progress.note(f"{task.name}: {ended.lost}; tried again")
                    waiting[self._submit(task)] = task

    def _notes(self) -> list[str]:
        """Which workers wait for a GPU, and for whom."""
        found = []
        for path in sorted(self._folder.glob("waiting-*")):
            with contextlib.suppress(OSError):
                _, host, gpu = path.name.split("-", 1)[0], *path.name.split("-", 1)[1].rsplit("-", 1)
                found.append(f"GPU {gpu} on {host}: {path.read_text()}; waiting until it is free")
        return found


def _ended(future: Future) -> Ended:
    """What a worker said, or how it was lost: what a task raises is the machine's fault, not a student's."""
    try:
        return future.result()
    except Exception as error:
        return Ended(
            None, f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
        )
