"""A worker that tries edited files on the cases of one exercise."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from grader.course.spec import Case, Exercise
from grader.judge.inputs import same_bits
from grader.judge.trial import LIMIT_S, MOST_ELEMENTS, Called, Trial, elements
from grader.worker.submission_worker import SubmissionWorker

WORK_OF_A_TRY = 14  # of reading a file and calling it, whatever it does
WORK_OF_AUTOGRAD = 12
ACCESSES_OF_WORK, LANES_OF_WORK = 5, 6000  # loads and stores, and their lanes, of one unit
FIRST_CASES = 8  # of which the one with the least work is tried
FEWEST_ELEMENTS = 64  # in a case of fewer too many edits look right
LIKE = 0.2  # a smaller case shows the same mistake if its share of right elements differs by no more
NEARER = 0.15  # by which the share of right elements rises where an edit brings a file nearer
FARTHER = 1.1  # times the error of an output that was before
MISSES = 3  # failing cases that an edit leaves wrong, after which the others are not looked at


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
        self._worker, self._exercise, self._start = worker, exercise, start
        self._small = [case for case in failing if elements(case) <= MOST_ELEMENTS] or [*failing[:1]]
        self._large = [case for case in failing if case not in self._small]
        self.failing = [self._trial(case) for case in self._small]
        few = [case for case in passing if elements(case) <= MOST_ELEMENTS]
        self._passing = [self._trial(case) for case in few]
        self._target = self.failing[0]
        self.limit_s = LIMIT_S

    def _trial(self, case: Case) -> Trial:
        return Trial(self._exercise, case, self._worker.session.seed, self._start)

    def aim(self, case: Case) -> None:
        """Try edits on this case from now on."""
        self._target = self._trial(case)

    def score(self, text: str) -> float:
        """Return how much of the case that it aims at a text gets right; less than 0 if it fails."""
        if self._worker.start() or self._worker.edit(text, LIMIT_S):
            return -1.0
        share = self._target.right(self._worker, limit_s=self.limit_s, bounds=True)
        if share < 1.0:
            return share
        # To look for races takes as long as the call, and few texts get here.
        return self._target.right(self._worker, witnessed=True, limit_s=self.limit_s)

    def work(self) -> int:
        """Return the work of the last score, as the loads and stores of its call show it."""
        seen = self._worker.witnessed
        own = WORK_OF_A_TRY + self._exercise.differentiable * WORK_OF_AUTOGRAD
        return own + seen.accesses // ACCESSES_OF_WORK + seen.lanes // LANES_OF_WORK

    def cheapest(self, text: str) -> int:
        """Return the number of a failing case whose call does the least work, one of the first few.

        A call that fails has done an unknown part of its work: others come before it.
        """
        if self._worker.start() or self._worker.edit(text, LIMIT_S):
            return 0
        found: list[tuple[bool, int, int]] = []
        for at, trial in enumerate(self.failing[:FIRST_CASES]):
            if elements(trial.case) >= FEWEST_ELEMENTS or at == 0:
                score = trial.right(self._worker, limit_s=LIMIT_S, bounds=True)
                if score < 1.0:
                    found.append((score < 0.0, self.work(), at))
        return min(found)[2] if found else 0

    def numbers(self) -> dict[tuple[str, str], set[int]]:
        """Return the whole numbers that kernels had in the last score, by the kernel and its parameter."""
        found: dict[tuple[str, str], set[int]] = {}
        for one in self._worker.witnessed.numbers:
            found.setdefault((one.kernel, one.name), set()).add(one.value)
        return found

    def shrunk(self, text: str, at: int, sizes: Sequence[Case]) -> Case:
        """Return a smaller case that shows what the failing case number `at` shows of a text, or that case.

        Its sizes are those of other cases, one after the other as small as they can be.
        """
        case = self._small[at]
        self.aim(case)
        base = self.score(text)
        for name, value in case.params.items():
            if type(value) is not int:
                continue
            seen = {one.params.get(name) for one in sizes} - {value}
            for other in sorted(one for one in seen if type(one) is int and 0 < one < value):
                smaller = replace(case, params={**case.params, name: other})
                if elements(smaller) < FEWEST_ELEMENTS:
                    continue
                try:
                    self.aim(smaller)
                except (RuntimeError, ValueError):  # no such case can be drawn
                    continue
                score = self.score(text)
                if score < 1.0 and abs(score - base) <= LIKE and (score < 0.0) == (base < 0.0):
                    case = smaller
                    break
        return case

    def keeps(self) -> bool:
        """Return whether the text of the last score is right in the cases that were right before."""
        return all(self._is_right(trial) for trial in self._passing)

    def mended(self) -> frozenset[int]:
        """Return which failing cases the text of the last score gets right; all of them if it is every one.

        Of a text that leaves many wrong only the first few are looked at.
        """
        found, missed = set[int](), 0
        for at, trial in enumerate(self.failing):
            if self._is_right(trial):
                found.add(at)
            else:
                missed += 1
            if missed >= MISSES and len(found) < 2:
                return frozenset()
        if missed == 0:  # few edits get here, and most do not need the inputs of large cases
            found |= {
                len(self.failing) + at
                for at, case in enumerate(self._large)
                if self._is_right(self._trial(case))
            }
        return frozenset(found)

    def helps(self, before: str, after: str, mended: Collection[int]) -> bool:
        """Return whether an edited file has one mistake less: what it leaves wrong is not what it changes.

        Of each failing case that is not `mended` the results are as before, or nearer to what is right.
        """
        left = [one for at, one in enumerate(self.failing) if at not in mended]
        # What a function allocates and does not write has other numbers in each call.
        for trial in (one for one in left if not one.case.allocates):
            old, new = (self._called(trial, text) for text in (before, after))
            if old is None or new is None:
                return False
            errors = [*zip(trial.errors(old), trial.errors(new), strict=True)]
            is_nearer = any(now <= was / 2.0 for was, now in errors)
            is_farther = any(now > FARTHER * was for was, now in errors)
            if is_farther or not (is_nearer or all(map(same_bits, old.outputs, new.outputs))):
                return False
        return True

    def _called(self, trial: Trial, text: str) -> Called | None:
        if self._worker.start() or self._worker.edit(text, LIMIT_S):
            return None
        return trial.call(self._worker, witnessed=True)

    def worst(self, text: str) -> int:
        """Return the number of the failing case of which a text gets least right, the first of several."""
        if self._worker.start() or self._worker.edit(text, LIMIT_S):
            return 0
        scores = [trial.right(self._worker, witnessed=True, limit_s=LIMIT_S) for trial in self.failing]
        return scores.index(min(scores))

    def names(self, mended: frozenset[int]) -> frozenset[str]:
        """Return the names of failing cases by their numbers."""
        every = [*self._small, *self._large]
        return frozenset(every[at].name for at in mended)

    def is_all(self, mended: frozenset[int]) -> bool:
        """Return whether these are all failing cases."""
        return len(mended) == len(self._small) + len(self._large)

    def _is_right(self, trial: Trial) -> bool:
        return trial.right(self._worker, witnessed=True) == 1.0
