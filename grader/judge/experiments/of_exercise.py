"""Experiments with a wrong exercise: each asks one question, on a worker of its own.

None of them edits the file, but for the repair that a wrong exercise may have already.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from grader.course.items import CaseItem
from grader.course.spec import Case, Reason
from grader.judge.dependence import dependence
from grader.judge.experiments.configs import right_with
from grader.judge.experiments.copies import conditional_copy
from grader.judge.experiments.numbers import other_number
from grader.judge.experiments.of_file import Failed, by_experiment
from grader.judge.experiments.outputs import exchanged_outputs
from grader.judge.experiments.programs import LAUNCHES
from grader.judge.experiments.rounding import rounded_down
from grader.judge.experiments.shifts import breaking_shift
from grader.judge.experiments.smallest import Smallest, smallest_wrong
from grader.judge.experiments.strides import BY_ONE
from grader.judge.facts import births, groupings, lines_of_combining
from grader.judge.measured import measured_of_file
from grader.judge.repair.bench import FEWEST_ELEMENTS
from grader.judge.repair.search import Repair, lay, parts_of
from grader.judge.repair.source import Source
from grader.judge.trial import MOST_ELEMENTS, Trial, elements
from grader.judge.usual_config import separated, unlike
from grader.judge.wrong import Wrong, is_open, is_unclear, share_wrong, with_configs
from grader.results.outcome import Outcome
from grader.worker.submission_worker import SubmissionWorker
from grader.worker.witness.record import Birth, Witnessed

COMBINING = ("reduce(", "associative_scan(")
LEFT_WITH_DIGITS = 0.5  # share of what is wrong, at most, where lost digits are why


def _with_its_copy(words: str, wrong: Wrong) -> str:
    """Add where a tensor is made contiguous, to a cause that takes it for contiguous."""
    tensor = re.search(rf"columns of `(\w+)` {BY_ONE}", words)
    copied = conditional_copy(Source(wrong.submission.text), tensor[1]) if tensor else ""
    return f"{words}; {copied}" if copied else words


class Experiments:
    """What is asked of a wrong exercise."""

    def __init__(self, workers_for: Callable[[CaseItem], Sequence[SubmissionWorker]]):
        self._workers_for = workers_for

    def _worker(self, wrong: Wrong) -> SubmissionWorker:
        return self._workers_for(wrong.answers[0][0])[0]

    def on_what_it_depends(self, wrong: Wrong, repair: Repair, until: float) -> str:
        """Say on which inputs an element depends that is wrong without a repair.

        Nothing is called after `until`, in seconds of the monotonic clock.
        """
        cases = [case for case in wrong.cases(right=False) if repair.mends(case) and not case.is_far]
        worker = self._worker(wrong)
        try:
            return dependence(worker, wrong.exercise, cases, until) if wrong.begin(worker) else ""
        finally:
            worker.close()

    def leaves_its_error(self, wrong: Wrong, repair: Repair) -> bool:
        """Return whether cases fail as before with a repair of others that fail at the same line.

        What is wrong there is not what the repair changes: in the others it happens not to matter.
        """
        mended = {
            outcome.frames[0].line
            for item, outcome in wrong.answers
            if is_unclear(outcome) and outcome.frames and repair.mends(item.case)
        }
        left = [
            item.case
            for item, outcome in wrong.answers
            if is_unclear(outcome)
            and outcome.frames
            and outcome.frames[0].line in mended
            and not (repair.mends(item.case) or item.case.needs_gpu or item.case.is_far)
        ]
        if not left:
            return False
        worker = self._worker(wrong)
        try:
            if worker.start():
                return False
            lay(worker, wrong.submission.text, repair)
            return Trial(wrong.exercise, min(left, key=elements), worker.session.seed).call(worker) is None
        finally:
            worker.close()

    def tried(self, wrong: Wrong) -> dict[str, str]:
        """Return the causes that launches with other programs, strides or values show, by the item's id."""
        worker = self._worker(wrong)
        failed = [Failed(item.id, item.case, outcome) for item, outcome in wrong.answers if is_open(outcome)]
        try:
            found = by_experiment(worker, wrong.exercise, failed) if wrong.begin(worker) else {}
            few = [one for one in failed if LAUNCHES in found.get(one.id, "")]
            # In large cases nothing else is tried.
            few = few or [
                one
                for one in failed
                if elements(one.case) > MOST_ELEMENTS and one.outcome.reason is Reason.UNWRITTEN
            ]
            # Programs are too few, or each is given too little: a division says which.
            down = self.rounded(worker, wrong, [one.case for one in few if one.can_be_called])
            found = {name: _with_its_copy(words, wrong) for name, words in found.items()}
            return found | (dict.fromkeys([one.id for one in few], down) if down else {})
        except SyntaxError:
            return {}
        finally:
            worker.close()

    @staticmethod
    def rounded(worker: SubmissionWorker, wrong: Wrong, cases: Sequence[Case]) -> str:
        """Say which division of host code rounds down, so that elements of these cases are wrong."""
        text = Source(wrong.submission.text).with_replaced(parts_of(wrong.repair))
        ordered = sorted(cases, key=elements)
        return rounded_down(worker, wrong.exercise, ordered, text) if cases else ""

    def by_config(self, wrong: Wrong) -> Wrong:
        """Return an exercise in which all cases that are right with another config have that as their cause.

        Of a case that is wrong in its first call no other config has been tried: those that make other cases
        right are. Of all configs that were tried it is said what separates the right ones from the wrong.
        """
        told = {
            tuple(one.right_configs.items()): one
            for _, one in wrong.answers
            if is_open(one) and one.right_configs
        }
        answers = [*wrong.answers]
        worker = self._worker(wrong)
        try:
            for known in told.values():
                asked = [
                    item.case
                    for item, one in answers
                    if is_open(one) and not (one.configs or item.case.needs_gpu or item.case.is_far)
                ]
                right = right_with(worker, wrong.exercise, asked, known.right_configs)
                for at, (item, one) in enumerate(answers):
                    if is_open(one) and not one.configs and item.case.name in right:
                        same = replace(one, cause=known.cause, plain_cause=known.cause, configs=known.configs)
                        answers[at] = with_configs(item, same), same
            every = list(told.values())
            kernels = self._deciding(worker, wrong, every)
        finally:
            worker.close()
        words = separated([one.right_configs for one in every], [one.configs for one in every], kernels)
        if words:
            answers = [
                (item, replace(one, cause=words, plain_cause=words) if one.configs else one)
                for item, one in answers
            ]
        return wrong._replace(answers=answers)

    @staticmethod
    def _deciding(worker: SubmissionWorker, wrong: Wrong, told: Sequence[Outcome]) -> list[str]:
        """Return the kernels whose config decides: with it in place of a right one a case is wrong."""
        found = dict[str, None]()
        for one in told:
            case = next(item.case for item, outcome in wrong.answers if outcome is one)
            kernels = unlike(one.right_configs, one.configs)
            for kernel in kernels:
                mixed = {**one.right_configs, kernel: one.configs[kernel]}
                if len(kernels) == 1 or not right_with(worker, wrong.exercise, [case], mixed):
                    found[kernel] = None
        return list(found)

    def by_numbers(self, wrong: Wrong) -> dict[str, Outcome]:
        """Return the outcomes of wrong cases that are right for another number, by the item's id."""
        asked = {
            item.case.name: (item.id, outcome)
            for item, outcome in wrong.answers
            if is_open(outcome) and not (item.case.needs_gpu or item.case.is_far or item.case.label)
        }
        cases = [case for case in wrong.cases(right=False) if case.name in asked]
        worker = self._worker(wrong)
        try:
            told = (
                {} if worker.start() else other_number(worker, wrong.exercise, cases, wrong.submission.text)
            )
        finally:
            worker.close()
        pairs = [(asked[name], words) for name, words in told.items()]
        return {at: replace(outcome, cause=words) for (at, outcome), words in pairs}

    def exchanged(self, wrong: Wrong) -> str:
        """Say which outputs have each other's values; "" if none have."""
        plain = [one for one in wrong.cases(right=False) if not (one.needs_gpu or one.is_far or one.label)]
        worker = self._worker(wrong)
        try:
            return "" if worker.start() else exchanged_outputs(worker, wrong.exercise, plain)
        finally:
            worker.close()

    def grouped(self, wrong: Wrong) -> tuple[str, range]:
        """Say which function of a reduction or scan is not associative, with its lines; "" if all are."""
        plain = [one for one in wrong.cases(right=False) if not (one.needs_gpu or one.is_far)]
        if not plain or not any(name in wrong.submission.text for name in COMBINING):
            return "", range(0)
        worker = self._worker(wrong)
        try:
            case = min(plain, key=lambda one: (elements(one) < FEWEST_ELEMENTS, elements(one)))
            trial = Trial(wrong.exercise, case, worker.session.seed)
            if not wrong.begin(worker) or trial.call(worker, witnessed=True) is None:
                return "", range(0)
            found = worker.witnessed.groupings
            text = wrong.submission.text
            return (groupings(found, text), lines_of_combining(found[0], text)) if found else ("", range(0))
        finally:
            worker.close()

    def born(self, wrong: Wrong, reason: Reason) -> str:
        """Say where the first NaN or inf of the smallest such case comes from, or where digits are lost.

        "" if there is no such case, or nothing is seen.
        """
        found = [
            (item.case, outcome)
            for item, outcome in wrong.answers
            if outcome.reason is reason and not item.case.needs_gpu and not item.case.label
        ]
        if not found:
            return ""
        cases = [min((case for case, _ in found), key=elements)]
        if reason is Reason.PRECISION:  # where most elements are wrong digits are lost in plain sight
            small = [pair for pair in found if elements(pair[0]) <= MOST_ELEMENTS]
            worst = max(small, key=lambda pair: share_wrong(pair[1]), default=None)
            cases = [*([worst[0]] if worst else []), *cases]
        told = (self._born_in(wrong, reason, case) for case in dict.fromkeys(cases))
        return next(filter(None, told), "")

    def _born_in(self, wrong: Wrong, reason: Reason, case: Case) -> str:
        """Say the same of one case."""
        worker = self._worker(wrong)
        trial = Trial(wrong.exercise, case, worker.session.seed)
        try:
            if not wrong.begin(worker):
                return ""
            share = trial.right(worker) if reason is Reason.PRECISION else 0.0
            called = trial.call(worker, traced=True)
            if called is None:
                return ""
            seen = [*worker.witnessed.births]
            if (
                reason is Reason.PRECISION
            ):  # digits are why, if with all of them most wrong elements are right
                of_digits = 1.0 - trial.share(called, Witnessed()) <= LEFT_WITH_DIGITS * (1.0 - share)
                return births([one for one in seen if one.exact and of_digits])
            # Values that are wrong everywhere may be too large for a result: that is no mistake of its own.
            others = any(is_open(one) and one.reason is not reason for _, one in wrong.answers)
            seen = [one for one in seen if not (one.exact or (others and one.operation.startswith("to ")))]
            return births(outside_of_right(wrong, seen))
        finally:
            worker.close()

    def shifted(self, wrong: Wrong) -> str:
        """Say that a constant added to an input spoils a result, where only some values of inputs do."""
        if any(case.params.get("values") is None for case in wrong.cases(right=False)):
            return ""
        right = [
            case for case in wrong.cases(right=True) if FEWEST_ELEMENTS <= elements(case) <= MOST_ELEMENTS
        ]
        plain = [
            case
            for case in right
            if case.params.get("values") is None and not (case.needs_gpu or case.is_far)
        ]
        worker = self._worker(wrong)
        try:
            return breaking_shift(worker, wrong.exercise, plain) if wrong.begin(worker) else ""
        finally:
            worker.close()

    def smallest(self, wrong: Wrong, most_s: float) -> Smallest | None:
        """Return the smallest wrong call, and what was tried to find it in so many seconds."""
        worker = self._worker(wrong)
        try:
            wrong.begin(worker)
            shown = wrong.cases(right=False, hidden=False)
            return smallest_wrong(worker, wrong.exercise, shown, most_s)
        finally:
            worker.close()

    def measured(self, wrong: Wrong) -> str:
        """Say how the wrong results relate to the right ones."""
        worker = self._worker(wrong)
        try:
            failing = wrong.cases(right=False)
            return measured_of_file(worker, wrong.exercise, failing) if wrong.begin(worker) else ""
        finally:
            worker.close()


def outside_of_right(wrong: Wrong, seen: Sequence[Birth]) -> Sequence[Birth]:
    """Return what was seen, or nothing if it was in a function that another exercise shows to be right.

    Then what went in was wrong before.
    """
    source = Source(wrong.submission.text)
    right = [function for name in wrong.right for function in source.reached_from(name)]
    inside = any(
        function.node.lineno <= one.line <= (function.node.end_lineno or 0)
        for one in seen
        for function in right
    )
    return () if inside else seen
