"""One explanation for all wrong cases of an exercise: the wrong line, or what the cases have in common.

A case alone shows a symptom, which many mistakes have. What holds for all cases of an exercise says more:
an edit of the file with which every case is right, and a condition that the wrong cases fulfil and the right
ones do not.
"""

from __future__ import annotations

import ast
import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from grader.course.items import CORRECTNESS, CaseItem, Item
from grader.course.spec import Case, Exercise, Reason, Verdict
from grader.course.submission import Submission
from grader.course.symptoms import Symptom
from grader.judge.contrast import UP_TO, contrast
from grader.judge.dependence import DISAGREE, dependence
from grader.judge.experiments.numbers import MOST_CASES, other_number
from grader.judge.experiments.of_exercise import Experiments
from grader.judge.experiments.programs import NEEDED, NEVER_STORED
from grader.judge.experiments.small_calls import by_small_calls
from grader.judge.experiments.smallest import MOST_S
from grader.judge.formula.of_file import formula_of_file
from grader.judge.measured import measured_of_file
from grader.judge.repair.bench import FEWEST_ELEMENTS
from grader.judge.repair.edit import CONDITION_OF_COPY, LATER_TURNS, PARTIAL_BLOCK, Edit
from grader.judge.repair.search import NotRunError, Repair, Search, lay
from grader.judge.repair.smaller import by_smaller_blocks, is_long
from grader.judge.repair.source import Source
from grader.judge.trial import MOST_ELEMENTS, Trial, elements
from grader.judge.usual_layout import near
from grader.judge.wrong import (
    Wrong,
    is_open,
    is_rare,
    is_unclear,
    is_wrong_throughout,
    seen_apart,
    with_configs,
)
from grader.results.outcome import Outcome
from grader.worker.submission_worker import SubmissionWorker

# Where the wrong elements lie, or that they are wrong: many mistakes look like this. Their usual cause is not
# named when no edit of the line that it means has helped.
DOUBTFUL = {
    Symptom.TAIL_WRONG,
    Symptom.LATER_BLOCKS_WRONG,
    Symptom.FIRST_BLOCKS_WRONG,
    Symptom.LAST_COLUMNS_WRONG,
    Symptom.LAST_ROWS_WRONG,
    Symptom.NOT_FINITE,
    Symptom.ALL_ZERO,
    Symptom.PRECISION,
    Symptom.SCALED,
    Symptom.GRADIENT,
    Symptom.WRONG,
    # NaN, or a change, between rows: that is said of masks, and may come of strides as well.
    Symptom.OUT_OF_BOUNDS_READ,
    Symptom.PADDED_WRITE,
}
TRACED = (Reason.NONFINITE, Reason.PRECISION)  # of which every operation of a case is looked at
SHARE_OF_MORE = 0.3  # of the work, for another function of a file in which one was looked for in vain
SHARE_OF_LONG = 0.4  # of the work, in long rows, after short ones with smaller blocks have not helped
SHARE_OF_SAID = 0.5  # of the work, where a relation to the right numbers is as good as a cause
SHARE_OF_TOLD = 0.2  # of the work, where an experiment has shown what is wrong
SHARE_OF_CRASHED = 0.25  # of the work, where the file crashes, and the shapes of its blocks say why
SHARE_OF_FAILED = 0.5  # of the work, where the file fails: most edits fail, too, which takes longer
SHARE_OF_ITS_OWN = 0.1  # of the work, for the code of a function besides a wrong one that it calls
MOST_TOLD = 0.6  # share of the wrong cases of which it must have done so
ROW_STRIDE = "row stride"
STEPS = "steps through"  # in a cause by an experiment, with which a case is right
MOST_FACTS = 2  # of an exercise, that are told before its cause is known
MOST_BESIDE = 3  # cases of another exercise of the file that an edit must keep right
LEAST_SEARCH_S = 5.0  # for which the cause is looked for, however long the cases of the lab took
LEAST_FOR_RELATION_S = 4.0  # that must be left for edits, if a relation is looked for before them
EXPERIMENTS_S = 0.5  # after the search has ended by the clock, in which experiments still begin
LEAST_DEPENDENCE_S = 1.0  # for which it is asked on which inputs a wrong element depends
SHARE_OF_EARLIER = 0.75  # of the time, for a function of a file or lab that is not the last wrong one
SHARE_OF_USUAL = 0.75  # of the time, for edits in cases of the usual sizes, before those in small calls
SHARE_OF_SMALL = 0.6  # of what is left then, for small calls; the rest is for experiments
MOST_MISTAKES = 2  # that are looked for in one function
MOST_LATE_S = 1.2  # after which nothing is measured any more
MORE = "The file has another mistake"
FAILURES = (Verdict.CRASHED, Verdict.COMPILE_ERROR)
Answered = tuple[Item, Outcome, float]


def _never_launched(wrong: Wrong) -> str:
    """Say which kernels of the file run nowhere; "" if all do."""
    try:
        names = [f"`{name}`" for name in Source(wrong.submission.text).never_used]
    except SyntaxError:
        return ""
    return f"nothing launches {' or '.join(names)}" if names else ""


class Explainer:
    """Explains the wrong exercises of one run; remembers the edits that have mended a file."""

    def __init__(
        self,
        workers_for: Callable[[CaseItem], Sequence[SubmissionWorker]],
        tell: Callable[[str, str], object],
    ):
        """`tell` gets the name of an exercise and what is found of it before all of it is known."""
        self._workers_for, self._tell, self._ask = workers_for, tell, Experiments(workers_for)
        self.until = math.inf  # seconds of the monotonic clock, at which no further edits are tried
        self._mended: dict[str, list[Edit]] = {}  # by the hash of a file
        self._wrong: dict[str, list[str]] = {}  # names of wrong functions, by the hash of their file
        self._unmended: dict[str, list[str]] = {}  # of these, the ones for which no edit was found
        self._wrong_in: dict[str, list[str]] = {}  # names of wrong functions, by the module of their file
        self._looked_at: dict[str, Wrong] = {}  # by the name of the function

    def explain(self, wrong: Wrong) -> dict[str, Outcome]:
        """Return the outcomes of an exercise's wrong cases by the item's id, with one cause for all.

        Empty where edits cannot be tried on this machine: each case keeps the cause that its symptom has.
        """
        key = wrong.submission.sha256 or ""
        self._looked_at.setdefault(wrong.exercise.name, wrong)
        # What is wrong with rows far apart, and with close ones as well, is looked for with close ones.
        answers = [(item, one) for item, one in wrong.answers if not _is_of_far_rows(one)]
        wrong = wrong._replace(
            answers=[(_near(item) if is_open(one) else item, one) for item, one in answers]
        )
        if not any(is_open(outcome) for _, outcome in wrong.answers):
            return {}
        wrong = self._ask.by_config(wrong)
        numbered = {} if key in self._mended else self._ask.by_numbers(wrong)
        if numbered:
            others = [(item, one) for item, one in wrong.answers if item.id not in numbered]
            is_left = any(is_open(one) for _, one in others)
            return numbered | (self.explain(wrong._replace(answers=others)) if is_left else {})
        failed = {item.id: outcome for item, outcome in wrong.answers if is_open(outcome)}
        tried: dict[str, str] | None = None
        try:
            unmended = _called(wrong, self._unmended.get(key, ()))
            calls = self._by_another(wrong, key) if unmended or key not in self._mended else ""
            repair, formula = self._by_edits(wrong, key, 1.0, again=True)
            if calls:
                return self._of_its_own(wrong, failed, calls, key, repair)
            if repair and repair.cases is not None:  # another edit may mend what these leave
                repair = None
            imports = self._by_imported(wrong)
            if imports:  # what is wrong here is seen when that is right
                hint = _common_hint(failed)
                return {name: replace(outcome, cause=imports, hint=hint) for name, outcome in failed.items()}
            another = exchanged = "" if repair else self._ask.exchanged(wrong)
            if exchanged:  # an edit says where as well
                found, _ = self._by_edits(wrong, key, SHARE_OF_SAID)
                if found and found.cases is None and not found.outputs:
                    repair, another = found, ""
            grouped, inside = ("", range(0)) if another or repair else self._ask.grouped(wrong)
            # A launch with too few programs, or a wrong stride, is found within a second.
            if not another and not repair and not is_wrong_throughout(wrong):
                tried = self._tried(wrong)
            needed = [words for words in (tried or {}).values() if _is_of_programs(words)]
            if len(needed) >= MOST_TOLD * max(1, len(failed)):
                # What the file allocates is not marked: what is never written may be any number.
                own = [item.id for item, _ in wrong.answers if item.case.allocates and item.id in failed]
                tried = dict.fromkeys(own, needed[0]) | (tried or {})
            sure = [words for words in (tried or {}).values() if _is_of_programs(words) or STEPS in words]
            told_already = len(sure) >= MOST_TOLD * max(1, len(failed))
            most = SHARE_OF_TOLD if told_already else SHARE_OF_SAID if grouped else 1.0
            shown = {
                name
                for name, words in (tried or {}).items()
                if NEVER_STORED not in words and LATER_TURNS not in words
            }
            told = {item.case.name for item, _ in wrong.answers if item.id in shown} or seen_apart(wrong)
            if told_already:  # the few others may have the same mistake
                told = set()
                self._tell(wrong.exercise.name, sure[0])
            if not another and not repair:
                self._tell_facts(wrong, failed)
                repair, formula = self._by_edits(wrong, key, most, told, is_shown=bool(grouped))
            if told_already and not repair and len(shown) < len(failed):  # the others have another mistake
                apart = {item.case.name for item, _ in wrong.answers if item.id in shown}
                repair, formula = self._by_edits(wrong, key, 1.0, apart)
            if repair and repair.cases and told and self._is_told_too_much(wrong, repair, tried or {}):
                more, _ = self._by_edits(wrong, key, 1.0)
                repair = more if more and len(more.edits) > len(repair.edits) else repair
            if repair and (_is_of_few_elements(wrong, repair) or self._ask.leaves_its_error(wrong, repair)):
                repair, another = None, exchanged
            # Of a function that edits have mended in all of its cases, nothing is left that could be why.
            is_open_still = bool(unmended) or key not in self._mended
            another = another or ("" if repair or not is_open_still else self._by_another(wrong, key))
            # An edit of that function says more, and what any other one mends is mended by chance.
            if grouped and not another and not (repair and any(edit.line in inside for edit in repair.edits)):
                repair, another = None, grouped
        except NotRunError:
            return {}
        self._wrong.setdefault(key, []).append(wrong.exercise.name)
        self._wrong_in.setdefault(Path(wrong.exercise.file).stem, []).append(wrong.exercise.name)
        hint = _common_hint(failed)
        if another:  # results that are exchanged look as if they were returned in another order, too
            same = failed | (_returned(wrong) if exchanged else {})
            return {name: replace(outcome, cause=another, hint=hint) for name, outcome in same.items()}
        if repair is None:
            self._unmended.setdefault(key, []).append(wrong.exercise.name)
            known = Repair((*self._mended.get(key, ()),))
            return self._not_mended(wrong._replace(repair=known), failed, formula, tried)
        if repair.outputs:
            formula = f"{sentence(repair)}: with another value there {_listed(repair.outputs)} right. {MORE}"
            return self._not_mended(wrong, failed, formula, tried)
        mended = {item.id for item, _ in wrong.answers if repair.mends(item.case)} & {*failed}
        named = {name: outcome for name, outcome in failed.items() if name in mended}
        hint = _common_hint(named)
        stepped = {name: words for name, words in (tried or {}).items() if STEPS in words}
        if CONDITION_OF_COPY in sentence(repair):  # a copy makes the rows of two tensors alike as well
            stepped = {name: words for name, words in stepped.items() if ROW_STRIDE in words}
        else:
            others_step = any(STEPS in words for name, words in (tried or {}).items() if name not in named)
            if not told_already or (_is_of_strides(repair) and not others_step) or _mends_all(repair):
                stepped = {}  # the edit says where the stride comes from, or that the strides are right
        words = sentence(repair)
        if any(edit.goes_around for edit in repair.edits) and not self._is_late(MOST_LATE_S):
            depends = self._ask.on_what_it_depends(wrong, repair, self._end_of_dependence())
            if depends:  # where that is seen, it is no longer open if the condition is wrong
                words = sentence(replace(repair, edits=tuple(one.seen_wrong() for one in repair.edits)))
            words = "; ".join(filter(None, (words, depends)))
        causes = {
            name: replace(one, cause=stepped.get(name, words), hint=hint) for name, one in named.items()
        }
        if exchanged:
            causes |= {name: replace(one, cause=sentence(repair)) for name, one in _returned(wrong).items()}
        if len(named) == len(failed):
            return causes
        self._unmended.setdefault(key, []).append(wrong.exercise.name)
        left = wrong._replace(
            answers=[pair for pair in wrong.answers if pair[0].id not in named], repair=repair
        )
        rest = {name: outcome for name, outcome in failed.items() if name not in named}
        if tried:  # what an experiment says of mended cases is mended: these have another mistake
            said = {tried[name] for name in named if name in tried and name not in stepped}
            tried = {name: words for name, words in tried.items() if words not in said}
        return causes | self._not_mended(left, rest, formula, tried)

    @staticmethod
    def _is_told_too_much(wrong: Wrong, repair: Repair, tried: dict[str, str]) -> bool:
        """Return whether an experiment says the same of cases that a repair mends, and of others."""
        mended = {tried.get(item.id) for item, _ in wrong.answers if repair.mends(item.case)}
        left = {
            tried.get(item.id) for item, one in wrong.answers if is_open(one) and not repair.mends(item.case)
        }
        return bool((mended & left) - {None})

    def _of_its_own(
        self, wrong: Wrong, failed: dict[str, Outcome], calls: str, key: str, known: Repair | None
    ) -> dict[str, Outcome]:
        """Return the outcomes of a function that `calls` a wrong one, of which no edit has mended all.

        Edits that have mended a part of that are `known`, if they mend cases here as well. Its own code may
        be wrong, too: experiments are made, and edits of what only it runs.
        """
        self._wrong[key].append(wrong.exercise.name)
        self._unmended.setdefault(key, []).append(wrong.exercise.name)
        hint, causes = _common_hint(failed), dict[str, str]()
        if known:
            causes = {item.id: sentence(known) for item, _ in wrong.answers if known.mends(item.case)}
        left = wrong._replace(answers=[pair for pair in wrong.answers if pair[0].id not in causes])
        causes |= self._tried(left) if left.answers else {}
        left = wrong._replace(answers=[pair for pair in wrong.answers if pair[0].id not in causes])
        if not known and any(is_open(outcome) for _, outcome in left.answers):
            repair, _ = self._by_edits(left, key, SHARE_OF_ITS_OWN)
            if repair and not repair.outputs:
                mended = [item.id for item, _ in left.answers if repair.mends(item.case)]
                causes |= dict.fromkeys(mended, sentence(repair))
        return {
            name: replace(outcome, cause=causes.get(name, calls), hint=hint)
            for name, outcome in failed.items()
        }

    def _not_mended(
        self, wrong: Wrong, failed: dict[str, Outcome], formula: str, tried: dict[str, str] | None = None
    ) -> dict[str, Outcome]:
        """Return the outcomes of wrong cases that no edit has mended, with what is known of them.

        `tried` are the causes that experiments have shown, if they were made.
        """
        hint = _common_hint(failed)
        # A NaN, and lost digits, may come of the mistake that the formula shows.
        born = {} if formula else {one: self._ask.born(wrong, one) for one in TRACED}
        tried = self._tried(wrong) if tried is None else tried
        # What is not found makes some values quite wrong, and others a little: that is no loss of digits.
        plain = {item.id for item, _ in wrong.answers if item.case.params.get("values") is None}
        far_off = [name for name, one in failed.items() if one.reason is Reason.MISMATCH]
        nan = ""  # where it is born is then no cause by itself
        if any(name in plain for name in far_off):
            born.pop(Reason.PRECISION, None)
            nan = born.pop(Reason.NONFINITE, "")
        signs = DOUBTFUL | {*wrong.answers[0][0].entry.lab.signs}
        # Where other cases are wrong in another way, a symptom of random numbers may come of that mistake.
        by_chance = wrong.exercise.bad_choice is not None and all(
            outcome.symptom not in (*signs, None) for outcome in failed.values()
        )
        facts = {
            name: tried.get(name)
            or outcome.plain_cause
            or born.get(outcome.reason, "")
            # Of a random choice its symptoms are measured: the share that is kept, or the factor.
            or (outcome.cause if by_chance else "")
            for name, outcome in failed.items()
        }
        seen = {name: replace(failed[name], cause=fact) for name, fact in facts.items() if fact}
        seen |= {name: outcome for name, outcome in failed.items() if is_unclear(outcome)}
        guessed = {name: outcome for name, outcome in failed.items() if name not in seen}
        if formula:  # which says nothing of elements that were never written
            follow = [name for name, one in guessed.items() if one.reason is not Reason.UNWRITTEN]
            seen |= {name: replace(guessed.pop(name), cause=formula, hint=hint) for name in follow}
            if not guessed:
                return seen
        causes = {outcome.cause for outcome in guessed.values()}
        # A symptom of a file that also fails, or has another mistake, may come of the same one.
        fails = any(outcome.verdict in FAILURES for _, outcome in wrong.answers) or bool(seen)
        doubtful = fails or any(outcome.symptom in signs for outcome in guessed.values())
        # Nothing was tried in cases that are too large for it, and smaller ones show what is right.
        sizes = [elements(item.case) for item, _ in wrong.answers if item.id in guessed]
        doubtful = doubtful or (min(sizes, default=0) > MOST_ELEMENTS and bool(wrong.cases(right=True)))
        if guessed:  # what is said of the others may be another mistake
            left = [pair for pair in wrong.answers if pair[0].id in guessed or not is_open(pair[1])]
            wrong = wrong._replace(answers=left)
        shown, right = (wrong.cases(is_right, hidden=False) for is_right in (False, True))
        found = contrast(shown, right) if shown else ""
        has_one = not guessed and len(failed) > 1 and len({*facts.values()}) == 1
        if has_one and found and right:  # one symptom, that some cases have
            return {
                name: replace(one, cause="; ".join(filter(None, (one.cause, found))))
                for name, one in seen.items()
            }
        if not guessed or (len(causes) == 1 and not doubtful):
            return failed | seen
        smallest = self._ask.smallest(wrong, MOST_S / 3 if self._is_late() else MOST_S)
        if smallest:  # and what separates has to hold in the calls that were tried, too
            found = contrast([*shown, *smallest.wrong], [*right, *smallest.right]) if shown else ""
        call = smallest.words if smallest and UP_TO not in found else ""  # else it has the same size again
        related = "" if self._is_late(MOST_LATE_S) else self._ask.shifted(wrong) or self._ask.measured(wrong)
        nan = nan if any(one.reason is Reason.NONFINITE for one in guessed.values()) else ""
        words = "; ".join(filter(None, ("not found", _never_launched(wrong), related, found, call, nan)))
        return seen | {name: replace(outcome, cause=words, hint=hint) for name, outcome in guessed.items()}

    def _tried(self, wrong: Wrong) -> dict[str, str]:
        """Return the causes that experiments show, by the item's id; none once it is late."""
        return {} if self._is_late() else self._ask.tried(wrong)

    def _end_of_dependence(self) -> float:
        """Return until when it is asked on what an element depends, in seconds of the monotonic clock."""
        return max(self.until + EXPERIMENTS_S, time.monotonic() + LEAST_DEPENDENCE_S)

    def _is_late(self, by_s: float = EXPERIMENTS_S) -> bool:
        """Return whether the time for the search, and so many seconds more, is up: little is done then."""
        return time.monotonic() > self.until + by_s

    def _by_edits(
        self,
        wrong: Wrong,
        key: str,
        most: float,
        told: Collection[str] = (),
        again: bool = False,
        is_shown: bool = False,
    ) -> tuple[Repair | None, str]:
        """Return edits that mend cases; of those that none mends, which formula the wrong values follow.

        `most` is the share of the usual work that may be done: a small one where an experiment has told what
        is wrong, which an edit would only say in other words. Edits are tried on other cases than those in
        `told`, of which an experiment has done so: these may have another mistake. If `again`, only the edits
        that have mended another function of the file are tried, also where other random numbers would mend.
        If `is_shown`, the cause is known, and only an edit would say more.
        """
        if again and key not in self._mended:
            return None, ""
        # Cases with rows far apart have a cause already, and need more memory than an edit is given.
        failing = [
            item.case
            for item, outcome in sorted(wrong.answers, key=lambda answer: elements(answer[0].case))
            if is_open(outcome) and not item.case.needs_gpu and not item.case.is_far
            and (again or outcome.symptom not in wrong.exercise.of_random_numbers)
            and (again or not (wrong.exercise.follow and is_rare(outcome)))
        ]  # fmt: skip
        if not failing:
            return None, ""
        passing = [case for case in wrong.cases(right=True) if not case.needs_gpu and not case.is_far]
        # In a case of a few elements too many edits look right: the first to be tried has more.
        failing.sort(key=lambda case: (case.name in told, elements(case) < FEWEST_ELEMENTS))
        item = next(item for item, _ in wrong.answers)
        workers = self._workers_for(item)
        try:
            unclear = [(item.case.name, one) for item, one in wrong.answers if is_unclear(one)]
            is_first = key not in self._mended and not told and most == 1.0 and not unclear
            follows = relation = ""
            is_related = False  # whether a relation was looked for
            is_whole = most == 1.0
            if is_first and not self._is_late() and not workers[0].start():
                if _shows_a_formula(failing, passing):
                    follows = formula_of_file(workers[0], wrong.exercise, failing)
                if not follows and self.until - time.monotonic() > LEAST_FOR_RELATION_S:
                    is_related = True
                    relation = measured_of_file(workers[0], wrong.exercise, failing, telling=True)
                if follows or relation:  # which says as much as an edit
                    self._tell(wrong.exercise.name, follows or relation)
                most = SHARE_OF_SAID if relation else most
            settled = self._searched(wrong, key)
            # With a mask that stores nothing an input that is overwritten stays as it was.
            verdicts = {outcome.verdict for _, outcome in wrong.answers if is_open(outcome)}
            masks = verdicts != {Verdict.MUTATED_INPUT}
            # What two functions of a file share was looked at with the first.
            share = SHARE_OF_MORE if self._wrong.get(key) and key not in self._mended else 1.0
            shaped = bool(unclear) and all(one.cause for _, one in unclear)
            share = min(share, most, (SHARE_OF_CRASHED if shaped else SHARE_OF_FAILED) if unclear else 1.0)
            text, found = wrong.submission.text, None
            if is_first and is_long(failing, passing):
                found = by_smaller_blocks(workers, text, wrong.exercise, failing, passing, share, self.until)
                share *= 1.0 if found else SHARE_OF_LONG
            if not found:
                errors = {tuple(frame.line for frame in one.frames) for _, one in unclear}
                given = wrong.exercise, failing, passing, settled, masks, share, told, errors, wrong.beside
                others = [one for item, one in wrong.answers if is_open(one) and item.case.name not in told]
                of_digits = all(one.reason is Reason.PRECISION for one in others)
                tell = lambda edit: self._tell_of(wrong, edit)  # noqa: E731
                now = time.monotonic()
                # However long experiments took, some of the time is for edits.
                least = LEAST_SEARCH_S / 2 if is_whole and not self._is_late() else 0.0
                until = self.until if again else now + max(least, SHARE_OF_USUAL * (self.until - now))
                search = Search(workers, text, *given, tell=tell, of_digits=of_digits, until=until)
                known = self._mended.get(key, ())
                found = search.again(known) if again else search.mend(known, bool(unclear))
            if again:
                return found, ""
            if found and not found.outputs:
                self._mended[key] = [*dict.fromkeys((*self._mended.get(key, ()), *found.edits))]
            elif not found and self._by_another(wrong, key):
                return None, ""
            crashed = {name for name, _ in unclear}
            left = [one for one in failing if one.name not in crashed and not (found and found.mends(one))]
            if not left or is_shown:
                return found, ""
            is_of_chance = wrong.exercise.follow is not None or wrong.exercise.bad_choice is not None
            untold = [one for one in left if one.name not in told]
            if is_whole and untold and not (unclear or is_of_chance or (found and found.outputs)):
                found, words = self._by_small_calls(workers, wrong, untold, passing, found, settled)
                if found and words:
                    self._mended[key] = [*dict.fromkeys((*self._mended.get(key, ()), *found.edits))]
                    return found, words
            lay(workers[0], text, found)
            if found and not found.outputs:  # without the first mistake a second one may be plain
                asked = [one for one in left if not one.label and elements(one) <= MOST_ELEMENTS]
                said = other_number(workers[0], wrong.exercise, asked[:MOST_CASES], text)
                if said and len(said) == len(asked[:MOST_CASES]):
                    return found, next(iter(said.values()))
                far_off = {item.case.name for item, one in wrong.answers if one.reason is Reason.MISMATCH}
                if _are_near(workers[0], wrong.exercise, [one for one in asked if one.name in far_off]):
                    return found, f"{sentence(found)}. With that right, too many digits are lost still"
            is_known = is_first and not found and left == failing  # the same was asked before the search
            formula = follows or relation if is_known else ""
            if not formula and not is_known and not self._is_late() and _shows_a_formula(left, passing):
                formula = formula_of_file(workers[0], wrong.exercise, left)
            if not (formula or (is_known and is_related) or found or self._is_late()):
                formula = measured_of_file(workers[0], wrong.exercise, left, telling=True)
            if formula and formula == relation and not self._is_late():
                # A relation says how the numbers are wrong, and two lines that do not agree why.
                depends = dependence(workers[0], wrong.exercise, left, until=self._end_of_dependence())
                formula = depends if DISAGREE in depends else formula
            if not formula and not self._is_late():
                laid = wrong if not found else wrong._replace(repair=found)
                shown = [one for one in left if not one.label and elements(one) >= FEWEST_ELEMENTS]
                formula = self._ask.rounded(workers[0], laid, shown)
                end = self._end_of_dependence()
                formula = formula or dependence(workers[0], wrong.exercise, left, until=end)
            return found, formula
        except SyntaxError:
            return None, ""
        finally:
            for worker in workers:
                worker.close()

    def _by_small_calls(
        self,
        workers: Sequence[SubmissionWorker],
        wrong: Wrong,
        left: Sequence[Case],
        passing: Sequence[Case],
        known: Repair | None,
        settled: Collection[str],
    ) -> tuple[Repair | None, str]:
        """Return edits, those `known` and others that small calls have shown, and what is said of cases that
        are wrong still, "" if nothing was found.
        """
        found, said = known, ""
        now = time.monotonic()
        until = now + SHARE_OF_SMALL * (self.until - now)
        for _ in range(MOST_MISTAKES - len(known.edits if known else ())):
            left = [one for one in left if not (found and found.mends(one))]
            if not left or time.monotonic() > until:
                break
            asked = workers, wrong.submission.text, wrong.exercise, left, passing, found, settled
            small = by_small_calls(*asked, until=until)
            if small is None:
                break
            found, edit = small
            words = sentence(Repair((edit,)))
            said = f"{said}; and {words}" if said else words
        return found, said

    def _tell_facts(self, wrong: Wrong, failed: dict[str, Outcome]) -> None:
        """Tell what was seen in the cases, before edits are tried, which takes seconds."""
        seen = [
            outcome.plain_cause or (outcome.cause if is_unclear(outcome) else "")
            for outcome in failed.values()
        ]
        if any(outcome.reason is Reason.NONFINITE for outcome in failed.values()):
            seen.append(self._ask.born(wrong, Reason.NONFINITE))
        for words in [*dict.fromkeys(filter(None, seen))][:MOST_FACTS]:
            self._tell(wrong.exercise.name, words)

    def _tell_of(self, wrong: Wrong, edit: Edit) -> None:
        words = f"{sentence(Repair((edit,)))}. With that right, some cases are wrong still, and are looked at"
        self._tell(wrong.exercise.name, words)

    def _searched(self, wrong: Wrong, key: str) -> set[str]:
        """Return the functions in which another wrong function's mistake was looked for, and not found."""
        if key in self._mended:
            return set()
        source, others = Source(wrong.submission.text), self._wrong.get(key, ())
        return {function.name for other in others for function in source.reached_from(other)}

    def _by_imported(self, wrong: Wrong) -> str:
        """Name a wrong function of another file that this one imports."""
        for node in Source(wrong.submission.text).tree.body:
            if isinstance(node, ast.ImportFrom) and self._wrong_in.get(node.module or ""):
                name = self._wrong_in[node.module or ""][0]
                return f"it imports from `{node.module}`, where `{name}` is wrong: its cause comes first"
        return ""

    def _by_another(self, wrong: Wrong, key: str) -> str:
        """Name the wrong functions that this one calls, if they can be why it is wrong."""
        others = _called(wrong, self._wrong.get(key, ()))
        if not others or all(_is_right_where_plain(self._looked_at[name], wrong) for name in others):
            return ""
        more = "which is wrong: its cause comes" if len(others) == 1 else "which are wrong: their causes come"
        return f"it calls {' and '.join(f'`{name}`' for name in others)}, {more} first"


def _called(wrong: Wrong, among: Collection[str]) -> list[str]:
    """Return the functions `among` others that a wrong one calls."""
    reached = Source(wrong.submission.text).reached_from(wrong.exercise.name)
    names = {function.name for function in reached} - {wrong.exercise.name}
    return [name for name in among if name in names]


def _is_right_where_plain(called: Wrong, caller: Wrong) -> bool:
    """Return whether plain cases of a function are right, and some of one that calls it are wrong."""
    right, wrong = (any(map(_is_plain, called.cases(is_right))) for is_right in (True, False))
    return right and not wrong and any(map(_is_plain, caller.cases(right=False)))


def _is_plain(case: Case) -> bool:
    """Return whether nothing but sizes and dtype tells a case from others."""
    only_sizes = all(type(value) is int for value in case.params.values())
    return only_sizes and not (case.layouts or case.is_far or case.allocates or case.needs_gpu)


def _are_near(worker: SubmissionWorker, exercise: Exercise, cases: Sequence[Case]) -> bool:
    """Return whether the present file of a worker is right but for digits in most of these cases."""
    near = 0
    for case in cases[:MOST_CASES]:
        trial = Trial(exercise, case, worker.session.seed)
        called = None if worker.start() else trial.call(worker)
        near += called is not None and trial.is_near(called)
    return near > len(cases[:MOST_CASES]) / 2


def _shows_a_formula(failing: Sequence[Case], passing: Sequence[Case]) -> bool:
    """Return whether wrong results may follow another formula: not if those of usual values are all right.

    Of values such as constant rows several formulas give the same.
    """
    usual = [[one.params.get("values") is None for one in cases] for cases in (failing, passing)]
    return any(usual[0]) or not any(usual[1])


def _near(item: CaseItem) -> CaseItem:
    return replace(item, case=near(item.case)) if item.case.is_far else item


def _is_of_far_rows(outcome: Outcome) -> bool:
    """Return whether a case is right where rows lie close together: then that is its cause."""
    return is_open(outcome) and outcome.symptom is Symptom.OFFSETS_WRAP


def _is_of_few_elements(wrong: Wrong, repair: Repair) -> bool:
    """Return whether a repair mends only cases of a few elements, in which too many edits look right.

    And others are wrong as well, or fail.
    """
    bad = [item.case for item, one in wrong.answers if is_open(one) or one.verdict in FAILURES]
    mended = {item.case.name for item, one in wrong.answers if is_open(one) and repair.mends(item.case)}
    few = {case.name for case in bad if elements(case) < FEWEST_ELEMENTS}
    return bool(mended) and mended <= few and len(few) < len(bad)


def _returned(wrong: Wrong) -> dict[str, Outcome]:
    """Return the outcomes of results that seem to be returned in another order, by the item's id."""
    return {item.id: one for item, one in wrong.answers if one.symptom is Symptom.RETURNED_ORDER}


def _common_hint(outcomes: dict[str, Outcome]) -> int | None:
    hints = {outcome.hint for outcome in outcomes.values()}
    return hints.pop() if len(hints) == 1 else None


def _is_of_programs(words: str) -> bool:
    """Return whether a cause says that programs are too few, or that what they are given is rounded down."""
    return NEEDED in words or PARTIAL_BLOCK in words


def sentence(found: Repair) -> str:
    """Return a repair in words: for each edit its line, and what is wrong there."""
    edits = sorted(found.edits, key=lambda edit: edit.line)
    return "; and ".join(f"line {edit.line}: {edit.mistake}" for edit in edits)


def _mends_all(repair: Repair) -> bool:
    """Return whether all wrong cases are right with edits that go around nothing."""
    return repair.cases is None and not any(edit.goes_around for edit in repair.edits)


def _is_of_strides(found: Repair) -> bool:
    """Return whether a repair changes what is passed as a stride, or how a tensor is laid out."""
    texts = [sentence(found), *(text for edit in found.edits for _, text in edit.parts)]
    return any(word in text for word in ("stride", "contiguous") for text in texts)


def _listed(names: Sequence[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return f"{' and '.join(quoted)} {'is' if len(names) == 1 else 'are'}"


def _all_right(
    answers: Sequence[Answered], path: Path, submission_of: Callable[[Item], Submission]
) -> set[str]:
    """Return the exercises of a file of which every case that was graded is right."""
    verdicts: dict[str, set[Verdict]] = {}
    for item, outcome, _ in answers:
        is_case = isinstance(item, CaseItem) and item.kind == CORRECTNESS
        if is_case and isinstance(item.exercise, Exercise) and submission_of(item).path == path:
            verdicts.setdefault(item.exercise.name, set()).add(outcome.verdict)
    graded = {name: found - {Verdict.NOT_GRADED} for name, found in verdicts.items()}
    return {name for name, found in graded.items() if found == {Verdict.PASS}}


def _some_cases(items: Sequence[Item], names: Collection[str]) -> list[tuple[Exercise, Case]]:
    """Return the smallest cases that are large enough, a few of each of these exercises."""
    found: dict[Exercise, list[Case]] = {}
    for item in items:
        is_case = isinstance(item, CaseItem) and item.kind == CORRECTNESS and item.exercise.name in names
        if is_case and isinstance(item.exercise, Exercise) and item.case is not None:
            runs = not (item.case.needs_gpu or item.case.is_far)
            if runs and FEWEST_ELEMENTS <= elements(item.case) <= MOST_ELEMENTS:
                found.setdefault(item.exercise, []).append(item.case)
    return [
        (exercise, case)
        for exercise, cases in found.items()
        for case in sorted(cases, key=elements)[:MOST_BESIDE]
    ]


def _reached(source: Source | None, name: str) -> set[str]:
    """Return the functions of a file that one of its functions runs; none if it is not Python."""
    return {one.name for one in source.reached_from(name)} if source else set()


def _source_of(submission: Submission) -> Source | None:
    try:
        return Source(submission.text)
    except SyntaxError:
        return None


def explained(
    answers: Sequence[Answered],
    submission_of: Callable[[Item], Submission],
    workers_for: Callable[[CaseItem], Sequence[SubmissionWorker]],
    begin: Callable[[str], object],
    tell: Callable[[str, Sequence[str]], object],
    start_up_s: float | None = None,
) -> list[Answered]:
    """Return the answers of a run with one explanation for each wrong exercise.

    `begin` is called with the name of each exercise that is looked at, because that takes seconds; `tell`
    with the causes that are found, as soon as they are: at last with all of them. `start_up_s`
    are seconds of the run before its first case: with it, edits of a lab's files are tried until that, its
    cases and they have taken as many seconds as the lab says.
    """
    for item, outcome, _ in answers:
        if outcome.verdict in FAILURES and outcome.cause and not is_open(outcome):  # nothing is looked for
            tell(item.exercise.name, [outcome.cause])
    explainer = Explainer(workers_for, lambda name, words: tell(name, [words]))
    changed: dict[tuple[Path, str], Outcome] = {}
    exercises = {(item.entry.folder, item.exercise): item.entry.lab for item, _, _ in answers}
    ends: dict[Path, float] = {}
    wrong_in: dict[Path, list[Exercise]] = {}
    for item, outcome, _ in answers:
        if is_open(outcome) and isinstance(item.exercise, Exercise):
            wrong = wrong_in.setdefault(item.entry.folder, [])
            wrong += [] if item.exercise in wrong else [item.exercise]
    for (folder, exercise), lab in exercises.items():
        mine = [
            (with_configs(item, outcome), outcome)
            for item, outcome, _ in answers
            if isinstance(item, CaseItem) and item.exercise is exercise and item.kind == CORRECTNESS
        ]
        if not isinstance(exercise, Exercise) or exercise.native:
            continue
        if any(is_open(outcome) for _, outcome in mine):
            begin(exercise.name)
            if start_up_s is not None:
                took = sum(seconds for item, _, seconds in answers if item.entry.folder == folder)
                left = max(LEAST_SEARCH_S, lab.search_s - start_up_s - took)
                now = time.monotonic()
                end = ends.setdefault(folder, now + left)
                # A function that is looked at later, and does not call this one, may have its own mistake.
                later = wrong_in[folder][wrong_in[folder].index(exercise) + 1 :]
                source = _source_of(submission_of(mine[0][0]))
                apart = [one for one in later if exercise.name not in _reached(source, one.name)]
                explainer.until = now + SHARE_OF_EARLIER * (end - now) if apart else end
            submission = submission_of(mine[0][0])
            beside = [pair for pair in answers if pair[0].entry.folder == folder]
            right = _all_right(beside, submission.path, submission_of)
            also = _some_cases([item for item, _, _ in beside], right)
            found = explainer.explain(Wrong(exercise, submission, mine, right, also))
            tell(exercise.name, [*dict.fromkeys(one.cause for one in found.values() if one.cause)])
            changed |= {(folder, name): outcome for name, outcome in found.items()}
    return [
        (item, changed.get((item.entry.folder, item.id), outcome), seconds)
        for item, outcome, seconds in answers
    ]
