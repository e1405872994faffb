"""Find the edits of a wrong file that make it right: they name the lines, and what is wrong there."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from grader.course.spec import Case, Exercise
from grader.course.submission import Submission
from grader.judge.repair.candidates import candidates
from grader.judge.repair.edit import Edit
from grader.judge.repair.source import Part, Source
from grader.judge.trial import LIMIT_S, MOST_ELEMENTS, Trial, elements
from grader.worker.submission_worker import SubmissionWorker

# What is tried is counted in work and not in seconds, so that two runs say the same. A unit is about a
# millisecond of one core, of which two need 8 s for all.
WORK_FOR_ONE, WORK_FOR_TWO = 10_000, 4_000  # of single edits, and of second ones
WORK_OF_A_TRY = 18  # of reading a file and calling it, whatever it does
WORK_OF_AUTOGRAD = 15
ACCESSES_OF_WORK, LANES_OF_WORK = 3, 4000  # loads and stores, and their lanes, of one unit
GIVE_UP_S = 30.0  # on a machine that is so slow that the work takes longer
SLOWER, SHORTEST_S = 4.0, 1.0  # a try that takes so many times as long as the unedited file has no end
MOST_STEPS = 4  # edits that bring a file nearer, on top of which a second one is tried
NEARER = 0.15  # by which the share of right elements must rise


class NotRunError(Exception):
    """The unedited file fails where edits are tried, so that nothing can be said about its mistakes."""


@dataclass(frozen=True)
class Repair:
    """The edits, one for each mistake, that make every case right."""

    edits: tuple[Edit, ...]


class Bench:
    """A worker with the cases that it tries edited files on, in its own part of the lent memory."""

    def __init__(
        self,
        worker: SubmissionWorker,
        exercise: Exercise,
        failing: Sequence[Case],
        passing: Sequence[Case],
        start: int,
    ):
        seed = worker.session.seed
        self._worker = worker
        small = [case for case in failing if elements(case) <= MOST_ELEMENTS] or failing[:1]
        self.failing = [Trial(exercise, case, seed, start) for case in small]
        few = [case for case in passing if elements(case) <= MOST_ELEMENTS]
        self._passing = [Trial(exercise, case, seed, start) for case in few]
        self._large = [case for case in failing if case not in small]
        self._is_differentiable = exercise.differentiable
        self.limit_s = LIMIT_S
        self._trial = lambda case: Trial(exercise, case, seed, start)

    def score(self, text: str, at: int = 0) -> float:
        """Return how much of one failing case a text gets right."""
        if self._worker.start() or self._worker.edit(text, LIMIT_S):
            return -1.0
        return self.failing[at].right(self._worker, witnessed=True, limit_s=self.limit_s)

    def work(self) -> int:
        """Return the work of the last score, as the loads and stores of its call show it."""
        seen = self._worker.witnessed
        own = WORK_OF_A_TRY + self._is_differentiable * WORK_OF_AUTOGRAD
        return own + seen.accesses // ACCESSES_OF_WORK + seen.lanes // LANES_OF_WORK

    def keeps(self) -> bool:
        """Return whether the text of the last score is right in the cases that were right before."""
        return all(trial.right(self._worker, witnessed=True) == 1.0 for trial in self._passing)

    def mends(self) -> bool:
        """Return whether the text of the last score is right in all failing cases."""
        if not all(trial.right(self._worker, witnessed=True) == 1.0 for trial in self.failing):
            return False
        # Few edits get here, and most do not need the inputs of large cases.
        return all(self._trial(case).right(self._worker, witnessed=True) == 1.0 for case in self._large)


class Search:
    """Tries the edits of one file on the cases of one exercise, on several workers at a time."""

    def __init__(
        self,
        workers: Sequence[SubmissionWorker],
        submission: Submission,
        exercise: Exercise,
        failing: Sequence[Case],
        passing: Sequence[Case],
        settled: Collection[str] = (),
    ):
        """`failing` and `passing` are cases of the unedited file; each runs on a CPU.

        The first failing one is tried with every edit. Functions in `settled` are not edited. SyntaxError if
        the file is not Python.
        """
        self._source = Source(submission.text)
        part = workers[0].arena.size // len(workers)
        self._benches = [
            Bench(worker, exercise, failing, passing, part * at) for at, worker in enumerate(workers)
        ]
        self._edits = candidates(self._source, exercise.name, settled)

    def mend(self, likely: Sequence[Edit] = ()) -> Repair | None:
        """Return the first edit by rank with which all cases are right, or two; None if there is none.

        `likely` are edits that have mended another function of the file: they are tried first. NotRunError
        if the unedited file does not run here; its cases may have failed on a GPU.
        """
        self._end = time.monotonic() + GIVE_UP_S
        began = time.monotonic()
        base = self._benches[0].score(self._source.text)
        limit_s = min(LIMIT_S, max(SHORTEST_S, SLOWER * (time.monotonic() - began)))
        for bench in self._benches:
            bench.limit_s = limit_s
        work = self._benches[0].work()
        edits = [*likely, *self._edits[: WORK_FOR_ONE // work]]
        if base < 0.0:
            raise NotRunError("the file does not run in the interpreter of this machine")
        if base == 1.0:  # what is wrong with this case is not seen here
            return None
        found, steps = self._sweep(edits, (), base, 0)
        if found:
            return Repair((found,))
        for step in steps[:MOST_STEPS]:
            scores = [
                self._benches[0].score(self._source.with_replaced(step.parts), at)
                for at in range(len(self._benches[0].failing))
            ]
            worst = scores.index(min(scores))
            most = WORK_FOR_TWO // (work * min(len(steps), MOST_STEPS))
            found, _ = self._sweep(self._edits[:most], step.parts, 1.0, worst)
            if found:
                return Repair((step, found))
        return None

    def put_back(self, worker: SubmissionWorker) -> None:
        """Let a worker have the unedited file again."""
        worker.edit(self._source.text, LIMIT_S)

    def _sweep(
        self, edits: Sequence[Edit], before: Sequence[Part], base: float, at: int
    ) -> tuple[Edit | None, list[Edit]]:
        """Try edits on top of others; return the first that mends all, and those that bring the file nearer.

        What is returned does not depend on which worker is faster.
        """
        best, steps = [len(edits)], list[tuple[float, int]]()

        def run(number: int) -> None:
            bench = self._benches[number]
            for index in range(number, len(edits), len(self._benches)):
                if index > best[0] or time.monotonic() > self._end:
                    return
                score = self._try(bench, (*before, *edits[index].parts), at)
                if score == 1.0 and bench.keeps():
                    if bench.mends():
                        best[0] = min(best[0], index)
                        return
                    steps.append((-2.0, index))
                elif score >= base + NEARER:
                    steps.append((-score, index))

        with ThreadPoolExecutor(len(self._benches)) as pool:
            for done in [pool.submit(run, number) for number in range(len(self._benches))]:
                done.result()
        if best[0] < len(edits):
            return edits[best[0]], []
        return None, [edits[index] for _, index in sorted(steps)]

    def _try(self, bench: Bench, parts: Sequence[Part], at: int) -> float:
        try:
            text = self._source.with_replaced(parts)
        except ValueError:
            return -1.0
        return bench.score(text, at)
