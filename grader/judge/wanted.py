"""What is expected of the calls of a case, and a thread that computes it for the next case."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from grader.course.signatures import Inputs
from grader.course.spec import Case, Exercise, Reason, Verdict
from grader.judge import comparison
from grader.judge.inputs import draw
from grader.results.outcome import Outcome
from grader.worker.session import Session


class Wanted:
    """The inputs of a case's calls, and what is expected of them; each attempt has other inputs.

    `compute` is called while the worker makes the first call, or ahead. `broken` is an outcome if the case
    itself is at fault, and `accepted` names worthless answers that would pass on these inputs.
    """

    def __init__(self, session: Session, exercise: Exercise, case: Case, calls: Sequence[int], attempt: int):
        self._session, self._exercise, self.case, self._attempt = session, exercise, case, attempt
        self.calls = sorted({*calls})
        self.inputs = [self._draw(0)]
        self.expected: list[comparison.Expected] = []
        self.broken: Outcome | None = None
        self.accepted: list[str] = []

    def is_for(self, case: Case, calls: Sequence[int]) -> bool:
        """Return whether this is about these calls of this very case."""
        return self.case is case and self.calls == sorted({*calls})

    def _draw(self, call: int) -> Inputs:
        session = self._session
        return draw(self._exercise, self.case, session.seed, session.device, 2 * self._attempt + call)

    def compute(self) -> None:
        """Compute what is expected, and look whether a worthless answer would pass."""
        exercise, case = self._exercise, self.case
        self.inputs.append(self._draw(1))
        self.expected = [comparison.expect(exercise, case, self.inputs[call]) for call in self.calls]
        words = comparison.invalid(case, self.expected)
        if words:  # a fault of the course, which costs no points
            self.broken = Outcome(Verdict.GRADER_FAULT, Reason.INVALID_REFERENCE, where=words)
            return
        if len(self.expected) == 1:
            others = comparison.rounded(exercise, case, self.inputs[1])
        else:
            others = self.expected[1].rounded
        self.accepted = comparison.accepted_nulls(exercise, case, self.expected[0], self.inputs[0], others)


class WantedAhead:
    """Computes what is expected of the next case in a thread, while this one is graded.

    For a GPU: small tensors cost the judge more time there than the worker, which would wait for it.
    """

    def __init__(self, session: Session):
        self._session = session
        self._thread = ThreadPoolExecutor(1)
        self._begun: tuple[Case, Future[Wanted]] | None = None

    def begin(self, exercise: Exercise, case: Case, calls: Sequence[int]) -> None:
        """Begin with a case, of which `calls` are made."""
        self._begun = case, self._thread.submit(self._compute, exercise, case, calls)

    def _compute(self, exercise: Exercise, case: Case, calls: Sequence[int]) -> Wanted:
        wanted = Wanted(self._session, exercise, case, calls, attempt=0)
        wanted.compute()
        return wanted

    def taken(self, case: Case) -> Future[Wanted] | None:
        """Return what was begun last, if it was this case."""
        begun, self._begun = self._begun, None
        return begun[1] if begun and begun[0] is case else None

    def wait(self) -> None:
        """Return when the thread does nothing any more: it would disturb a timed block."""
        if self._begun:
            wait([self._begun[1]])

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(cancel_futures=True)
