"""Compile what a run will launch, side by side on the host's cores, before the workers on the GPU need it.

A worker on the GPU would compile each kernel when a case first launches it, one after the other. Here workers
without a GPU make the same calls, in which nothing runs, and fill the cache that the workers on the GPU use.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import psutil

from grader.course.signatures import Shapes
from grader.course.spec import Case, Exercise
from grader.course.submission import Submission
from grader.judge.correctness import lay_out
from grader.judge.inputs import Placer, numbers_in
from grader.judge.shapes import fit, shapes_of
from grader.judge.speed import FEWEST_CALLS
from grader.worker.session import Session
from grader.worker.shared_memory import Arena, Call
from grader.worker.submission_worker import SubmissionWorker

TUNINGS = ("chance", "full")  # of the cases, and of the timed shapes
MOST_WORKERS = 16
MOST_FOR_A_FILE = 4  # workers that compile one file; several files are compiled at once
SHARE_OF_THE_FIRST = 0.6  # of all workers, for the file whose cases are graded first
WORKER_BYTES = 1 << 30  # of host memory, a generous estimate for one worker with its compiler
LIMIT_S = 180.0  # for one file
SHORT_S = 0.1
# By Python's own 5 ms the thread that grades would wait after each read of a file, for seconds in all.
SWITCH_S = 0.0005
LONG_ROW = 8192  # elements
MOST_CALLS = 32  # of one plan; a frame has at most 64 KiB


@dataclass(frozen=True)
class Launching:
    """A call that the run will make; `tuning` says how autotuned kernels choose a config then."""

    exercise: Exercise
    case: Case
    tuning: str  # one of TUNINGS
    set_bytes: int = 0  # of a buffer set, if the case is a timed shape: a smaller one is taken if it must be


@dataclass(frozen=True)
class File:
    """A student's file, what it may import, and the calls that the run will make of its functions."""

    submission: Submission
    given: tuple[Path, ...]
    parts: tuple[Submission, ...]
    calls: tuple[Launching, ...]


@dataclass(frozen=True)
class _Plan:
    """Calls of one function that share their numbers."""

    exercise: Exercise
    tuning: str
    named: Mapping[str, float]
    calls: Sequence[Call]


def workers_here() -> int:
    """Return how many workers compile at once: memory must suffice, and a quarter of the cores is left.

    Grading goes on meanwhile: with all cores but one compiling, its cases took a sixth longer beside an H200.
    """
    cores = len(os.sched_getaffinity(0))
    left = max(1, cores // 4)
    return max(1, min(MOST_WORKERS, cores - left, psutil.virtual_memory().available // WORKER_BYTES))


class CompileAhead:
    """Compiles the files of a run in the background, each into the cache of its workers.

    An error has no consequence here: the case that meets it again says what it is.
    """

    def __init__(
        self, session: Session, arena: Arena, arch: int, many: int | None = None, limit_s: float = LIMIT_S
    ):
        self._session, self._arena, self._arch, self._limit_s = session, arena, arch, limit_s
        self._many = many or workers_here()
        self._threads = ThreadPoolExecutor(self._many, "ahead")
        self._begun: dict[tuple[Path, str], list[Future[None]]] = {}  # by file and tuning
        self._running: set[SubmissionWorker] = set()
        self._closed = False

    def start(self, files: Iterable[File]) -> None:
        """Begin to compile these files, in their order: for the cases of all, and then for timed shapes."""
        sys.setswitchinterval(SWITCH_S)
        files = list(files)
        for tuning in TUNINGS:
            for number, file in enumerate(files):
                plans = _Plans([call for call in file.calls if call.tuning == tuning], self._limit_s)
                workers = min(self._many, MOST_FOR_A_FILE)
                if number == 0 and tuning == TUNINGS[0]:  # it is waited for, while the others compile
                    alone, share = len(files) == 1, round(self._many * SHARE_OF_THE_FIRST)
                    workers = self._many if alone else max(workers, share)
                begun = [self._threads.submit(self._compile, file, plans, tuning) for _ in range(workers)]
                self._begun.setdefault((file.submission.path, tuning), []).extend(begun)

    def wait(self, path: Path | None = None) -> None:
        """Wait until a file is compiled for its cases, or all is: busy cores would disturb a clock."""
        asked = [key for key in self._begun if path is None or key == (path, TUNINGS[0])]
        wait([one for key in asked for one in self._begun[key]])

    def close(self) -> None:
        """End the workers; what they have not compiled is compiled when it is needed."""
        self._closed = True  # those that have not begun return at once
        begun = [one for futures in self._begun.values() for one in futures]
        while wait(begun, timeout=0.0).not_done:
            for worker in list(self._running):
                worker.kill()
            wait(begun, timeout=SHORT_S)  # one that was about to start is running then
        self._threads.shutdown()

    def _compile(self, file: File, plans: _Plans, tuning: str) -> None:
        """Make the calls of a file in one worker; others make them, too, and share the work."""
        with contextlib.suppress(Exception):
            if not self._closed:
                self._make(file, tuning, *plans.all())

    def _make(self, file: File, tuning: str, plans: Sequence[_Plan], deadline: float) -> None:
        if not plans:
            return
        worker = SubmissionWorker(
            self._session,
            file.submission,
            self._arena,
            tuning=tuning,
            arch=self._arch,
            ahead=True,
            given=file.given,
            parts=file.parts,
        )
        self._running.add(worker)
        try:
            for plan in plans:
                if self._failed(worker, plan, plan.calls, deadline):
                    for call in plan.calls:  # one by one: an error ends a plan
                        self._failed(worker, plan, [call], deadline)
        finally:
            self._running.discard(worker)
            worker.close()

    def _failed(self, worker: SubmissionWorker, plan: _Plan, calls: Sequence[Call], deadline: float) -> bool:
        """Make some calls of a plan in a worker; return whether that failed before the time was up."""
        left = deadline - time.monotonic()
        if self._closed or left <= 0.0 or worker.start():
            return False
        number = worker.prepare(plan.exercise, calls, left, named=plan.named)
        return not isinstance(number, int) or worker.go(number, left) is not None


class _Plans:
    """The plans of a file, which the first worker lays out for all, and the time at which all of them end."""

    def __init__(self, calls: Sequence[Launching], limit_s: float):
        self._calls, self._limit_s = calls, limit_s
        self._lock = threading.Lock()
        self._made: tuple[list[_Plan], float] | None = None

    def all(self) -> tuple[list[_Plan], float]:
        with self._lock:
            if self._made is None:
                # Python's sort is stable: all others stay in the order in which they are graded.
                shaped = [(call, shapes_of(call.exercise, call.case)) for call in self._calls]
                longest_first = sorted(shaped, key=lambda one: not _has_long_rows(one[1]))
                self._made = list(_in_plans(longest_first)), time.monotonic() + self._limit_s
            return self._made


def _has_long_rows(shapes: Shapes) -> bool:
    """Return whether a kernel may hold so long a row in one block that it takes seconds to compile."""
    sizes = [shape for shape in shapes.values() if isinstance(shape, tuple) and len(shape) > 1]
    return any(size[-1] > LONG_ROW for size in sizes)


def _in_plans(calls: Sequence[tuple[Launching, Shapes]]) -> Iterator[_Plan]:
    """Lay out calls, and put those that follow each other and share function and numbers in one plan."""
    plan: _Plan | None = None
    for one, whole in calls:
        case, shapes = one.case, whole
        if one.set_bytes:
            case = fit(one.exercise, case, one.set_bytes, FEWEST_CALLS) or case
            shapes = shapes_of(one.exercise, case)
        laid, named = lay_out(one.exercise, case, Placer(), shapes), numbers_in(shapes)
        wanted = _Plan(one.exercise, one.tuning, named, [laid])
        if plan and _joins(plan, wanted):
            plan = _Plan(one.exercise, one.tuning, named, [*plan.calls, laid])
            continue
        if plan:
            yield plan
        plan = wanted
    if plan:
        yield plan


def _joins(plan: _Plan, other: _Plan) -> bool:
    same = plan.exercise is other.exercise and plan.tuning == other.tuning and plan.named == other.named
    return same and len(plan.calls) < MOST_CALLS
