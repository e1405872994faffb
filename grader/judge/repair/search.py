"""Find the edits of a wrong file that make it right: they name the lines, and what is wrong there."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from grader.course.spec import Case, Exercise
from grader.course.submission import Submission
from grader.judge.repair.bench import NEARER, Bench
from grader.judge.repair.candidates import candidates
from grader.judge.repair.edit import Edit
from grader.judge.repair.source import Part, Source
from grader.judge.trial import LIMIT_S
from grader.worker.submission_worker import SubmissionWorker

# What is tried is counted in work and not in seconds, so that two runs say the same. A unit is about a
# millisecond of one core where a kernel is short; where it is long, rewriting it takes more.
WORK_FOR_ONE, WORK_FOR_TWO = 12_000, 5_000  # of single edits, and of second ones
GIVE_UP_S = 30.0  # on a machine that is so slow that the work takes longer
SLOWER, SHORTEST_S = 4.0, 1.0  # a try that takes so many times as long as the unedited file has no end
FEWEST_MENDED = 2  # cases that an edit makes right for which it is named, where it does not mend all
MOST_STEPS = 4  # edits that bring a file nearer, on top of which a second one is tried


class NotRunError(Exception):
    """The unedited file fails where edits are tried, so that nothing can be said about its mistakes."""


@dataclass(frozen=True)
class Repair:
    """The edits, one for each mistake, and the names of the cases that they make right; None for all."""

    edits: tuple[Edit, ...]
    cases: frozenset[str] | None = None

    def mends(self, case: Case) -> bool:
        """Return whether a wrong case is right with the edits."""
        return self.cases is None or case.name in self.cases


class Mend(NamedTuple):
    """An edit by its rank among those that were tried, and the numbers of the failing cases that it mends."""

    at: int
    cases: frozenset[int]
    is_all: bool


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
        masks: bool = True,
    ):
        """`failing` and `passing` are cases of the unedited file; each runs on a CPU.

        One of the first failing ones is tried with every edit. Functions in `settled` are not edited, and
        masks only if `masks`.
        SyntaxError if the file is not Python.
        """
        self._source = Source(submission.text)
        part = workers[0].arena.size // len(workers)
        self._benches = [
            Bench(worker, exercise, failing, passing, part * at) for at, worker in enumerate(workers)
        ]
        self._sizes = (*failing, *passing)
        edits = candidates(self._source, exercise.name, settled)
        self._edits = [one for one in edits if masks or "mask" not in one.kind]

    def mend(self, likely: Sequence[Edit] = (), may_fail: bool = False) -> Repair | None:
        """Return the first edit by rank with which all cases are right, or two edits; None if none is found.

        If there are no such edits, the one that makes most wrong cases right, and no right one wrong, is
        returned: the others have another mistake. `likely` are edits that have mended another function of the
        file: they are tried first. One that only removes something, or that changes many places, is not
        returned for some cases alone: what it changes may be right in the others. NotRunError if the unedited
        file does not run here, unless it `may_fail`; its cases may have failed on a GPU.
        """
        self._end = time.monotonic() + GIVE_UP_S
        first = self._benches[0].cheapest(self._source.text)
        base = self._aim(first, ())
        if base < 0.0 and not may_fail:
            raise NotRunError("the file does not run in the interpreter of this machine")
        if base == 1.0:  # what is wrong with this case is not seen here
            return None
        if likely:
            found = self._on_top_of(likely)
            if found:
                return found
            base = self._aim(first, ())
        work = self._benches[0].work()
        edits = self._likely_to_matter()[: WORK_FOR_ONE // work]
        mends, steps = self._sweep(edits, (), base)
        if mends and mends[0].is_all:
            return Repair((edits[mends[0].at],))
        bench = self._benches[0]
        for one in [one for one in mends if edits[one.at].is_local][:MOST_STEPS]:
            text = self._source.with_replaced(edits[one.at].parts)
            if len(one.cases) >= FEWEST_MENDED and bench.helps(self._source.text, text, one.cases):
                second = self._second(edits[one.at], WORK_FOR_ONE)
                return second or Repair((edits[one.at],), bench.names(one.cases))
        for step in steps[:MOST_STEPS]:
            second = self._second(step, WORK_FOR_TWO // min(len(steps), MOST_STEPS))
            if second:
                return second
        return None

    def _second(self, first: Edit, most: int) -> Repair | None:
        """Return an edit with a second one that mends what it leaves wrong.

        `most` is the work of the search.
        """
        base = self._aim(self._benches[0].worst(self._source.with_replaced(first.parts)), first.parts)
        edits = self._likely_to_matter()[: most // self._benches[0].work()]
        found, _ = self._sweep(edits, first.parts, base)
        return Repair((first, edits[found[0].at])) if found and found[0].is_all else None

    def _on_top_of(self, known: Sequence[Edit]) -> Repair | None:
        """Return the known edits, with one more if they do not mend all; None if they mend nothing."""
        bench, parts = self._benches[0], [part for edit in known for part in edit.parts]
        self._try(bench, parts)
        mended = bench.mended()
        if not bench.keeps():
            return None
        if bench.is_all(mended):
            return Repair((*known,))
        base = self._aim(bench.worst(self._source.with_replaced(parts)), parts)
        edits = self._likely_to_matter()[: WORK_FOR_ONE // bench.work()]
        second, _ = self._sweep(edits, parts, base)
        if second and second[0].is_all:
            return Repair((*known, edits[second[0].at]))
        return Repair((*known,), bench.names(mended)) if mended else None

    def _likely_to_matter(self) -> list[Edit]:
        """Return the edits without those that put one parameter for another that has the same number here."""
        numbers = self._benches[0].numbers()
        return [one for one in self._edits if not all(self._is_the_same(part, numbers) for part in one.parts)]

    def _is_the_same(self, part: Part, numbers: Mapping[tuple[str, str], set[int]]) -> bool:
        (begin, end), text = part
        kernel = self._source.function_at(begin)
        had = numbers.get((kernel, self._source.between(begin, end)))
        return had is not None and len(had) == 1 and had == numbers.get((kernel, text))

    def _aim(self, at: int, parts: Sequence[Part]) -> float:
        """Aim at a failing case, as small as it can be; return how much of it the edited file gets right."""
        text, first = self._source.with_replaced(parts), self._benches[0]
        first.limit_s = LIMIT_S
        case = first.shrunk(text, at, self._sizes)
        for bench in self._benches:
            bench.aim(case)
        began = time.monotonic()
        base = first.score(text)
        limit_s = min(LIMIT_S, max(SHORTEST_S, SLOWER * (time.monotonic() - began)))
        for bench in self._benches:
            bench.limit_s = limit_s
        return base

    def lay(self, worker: SubmissionWorker, found: Repair | None) -> None:
        """Let a worker have the file with the edits of a repair, or as it was."""
        parts = [part for edit in found.edits for part in edit.parts] if found else []
        worker.edit(self._source.with_replaced(parts), LIMIT_S)

    def _sweep(
        self, edits: Sequence[Edit], before: Sequence[Part], base: float
    ) -> tuple[list[Mend], list[Edit]]:
        """Try edits on top of others; return those that mend cases, the best first, and those that bring the
        file nearer.

        What is returned does not depend on which worker is faster.
        """
        best, mends, steps = [len(edits)], list[Mend](), list[tuple[float, int]]()

        def run(number: int) -> None:
            bench = self._benches[number]
            for index in range(number, len(edits), len(self._benches)):
                if index > best[0] or time.monotonic() > self._end:
                    return
                score = self._try(bench, (*before, *edits[index].parts))
                if score == 1.0:
                    cases = bench.mended()
                    if cases and bench.keeps():
                        mends.append(Mend(index, cases, bench.is_all(cases)))
                        if mends[-1].is_all:
                            best[0] = min(best[0], index)
                            return
                elif score >= base + NEARER:
                    steps.append((-score, index))

        with ThreadPoolExecutor(len(self._benches)) as pool:
            for done in [pool.submit(run, number) for number in range(len(self._benches))]:
                done.result()
        found = [one for one in mends if one.at <= best[0]]
        found.sort(key=lambda one: (-len(one.cases), one.at))
        return found, [edits[index] for _, index in sorted(steps)]

    def _try(self, bench: Bench, parts: Sequence[Part]) -> float:
        try:
            text = self._source.with_replaced(parts)
        except ValueError:
            return -1.0
        return bench.score(text)
