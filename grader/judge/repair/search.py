"""Find the edits of a wrong file that make it right: they name the lines, and what is wrong there."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from grader.course.spec import Case, Exercise
from grader.judge.repair.bench import (
    FEWEST_ACCESSES,
    MOST_ACCESSES,
    MOST_IN_CASES,
    NEARER,
    SLOWER,
    Bench,
    Observed,
    slowest,
)
from grader.judge.repair.candidates import candidates
from grader.judge.repair.edit import (
    ASKS_NOTHING,
    CONDITION_OF_COPY,
    LATER_TURNS,
    ONE_OBJECT,
    OUT_OF_LOOP,
    PARTIAL_BLOCK,
    SET_ONCE,
    Edit,
)
from grader.judge.repair.effects import Effects, Known
from grader.judge.repair.evidence import by_evidence, of_digits_first
from grader.judge.repair.neutral import guarded, neutral, spoiled
from grader.judge.repair.relevance import Relevance, Touched
from grader.judge.repair.source import Part, Source
from grader.judge.trial import LIMIT_S
from grader.worker.submission_worker import SubmissionWorker

# What is tried is counted in work and not in seconds, so that two runs say the same. A unit is about a
# millisecond of one core where a kernel is short; where it is long, rewriting it takes more.
WORK_FOR_ONE, WORK_FOR_TWO = 18_000, 6_000  # of single edits, and of second ones
SHARE_OF_AGAIN = 0.3  # of the work, without the edits of another function, on top of which all were tried
SHARE_OF_OTHER = 0.5  # of the work, in another case where no edit mends the first
FEWEST_MENDED = 2  # cases that an edit makes right for which it is named, where it does not mend all
MOST_REDRAWN = 3  # times that other inputs are drawn, where a failing case is right on those at hand
MUCH_FURTHER = 300  # edits that are tried after one that mends most cases
FURTHER = 120  # edits that are tried after one that mends all, but lets programs do more than before
MUCH_MORE = 2  # times the lanes that there were before
SHARE_OF_OWN = 0.25  # of the time, for edits of such code
LATE_S = 2.0  # for which an edit that was begun in time is still tried in further cases
MOST_OWN = 30  # edits of code that no right exercise runs, of which every two are tried together
MOST_COMPARED = 1200  # edits whose effects are compared: few searches try as many
MOST_STEPS = 4  # edits that bring a file nearer, on top of which a second one is tried
FEWEST_TRIES = 20  # for which a second search is worth what it takes to begin it


class NotRunError(Exception):
    """The unedited file fails where edits are tried, so that nothing can be said about its mistakes."""


@dataclass(frozen=True)
class Repair:
    """The edits, one for each mistake, and the names of the cases that they make right; None for all.

    Or the names of the outputs that they make right, where no case is right because another output is wrong.
    """

    edits: tuple[Edit, ...]
    cases: frozenset[str] | None = None
    outputs: tuple[str, ...] = ()

    def mends(self, case: Case) -> bool:
        """Return whether a wrong case is right with the edits."""
        return self.cases is None or case.name in self.cases


@functools.lru_cache(maxsize=4)
def _candidates(text: str, name: str, settled: frozenset[str]) -> list[Edit]:
    """Return the edits of a file: several searches of one file have the same."""
    return candidates(Source(text), name, settled)


def lay(worker: SubmissionWorker, text: str, found: Repair | None) -> None:
    """Let a worker have a file with the edits of a repair, or as it was."""
    worker.edit(Source(text).with_replaced(parts_of(found)), LIMIT_S)


def parts_of(found: Repair | None) -> list[Part]:
    """Return what a repair replaces."""
    return [part for edit in found.edits for part in edit.parts] if found else []


class Mend(NamedTuple):
    """An edit, the numbers of the failing cases that it mends, and the lanes of the accesses with it."""

    edit: Edit
    cases: frozenset[int]
    is_all: bool
    lanes: int


class Step(NamedTuple):
    """An edit that brings the file nearer, and the numbers of the outputs that it makes right."""

    edit: Edit
    outputs: frozenset[int]


def _most_first(found: Mend) -> tuple[int, bool, bool, bool, int]:
    edit = found.edit
    # What is taken out of a loop runs less often than what is only moved there.
    return -len(found.cases), edit.goes_around, edit.is_of_several, OUT_OF_LOOP in edit.kind, found.lanes


class Search:
    """Tries the edits of one file on the cases of one exercise, on several workers at a time."""

    def __init__(
        self,
        workers: Sequence[SubmissionWorker],
        text: str,
        exercise: Exercise,
        failing: Sequence[Case],
        passing: Sequence[Case],
        settled: Collection[str] = (),
        masks: bool = True,
        share: float = 1.0,
        told: Collection[str] = (),
        errors: Collection[Sequence[int]] = (),
        beside: Sequence[tuple[Exercise, Case]] = (),
        tell: Callable[[Edit], object] = lambda _: None,
        of_digits: bool = False,
        until: float = math.inf,
    ):
        """`failing` and `passing` are cases of the unedited file, with this `text`; each runs on a CPU.

        So do those `beside`, of other exercises, which are right as well.

        One of the first failing ones is tried with every edit. Functions in `settled` are not edited, and
        masks only if `masks`. `share` is how much of the usual work may be done. Failing cases whose names
        are `told` are aimed at only if there is no other. Where it fails, `errors` are the lines of each
        traceback, the innermost first.
        `tell` gets an edit that mends some cases before a second one is looked for, which takes seconds.
        If `of_digits`, the failing cases are wrong by too few digits alone. `until` is the time of the
        monotonic clock, in seconds, from which on nothing new is tried.
        SyntaxError if the file is not Python.
        """
        self._source = Source(text)
        part = workers[0].arena.size // len(workers)
        self._benches = [
            Bench(worker, exercise, failing, passing, part * at, told, beside, until + LATE_S)
            for at, worker in enumerate(workers)
        ]
        self._sizes = (*failing, *passing)
        self._name, self._right = exercise.name, {one.name for one, _ in beside}
        self._settled, self._masks = settled, masks
        self._errors, self._tell = frozenset(lines[0] for lines in errors if lines), tell
        self._of_digits, self._until = of_digits, until
        self._launching = self._that_launch(errors)
        self._found: Known | None = None
        self._took = 0  # work of the edits that were tried last
        self._tried = 0  # how many of them, the first ones
        self._may_fail = False
        self._seen = Observed()  # of the unedited file, in the case that is tried
        self._one, self._two = round(share * WORK_FOR_ONE), round(share * WORK_FOR_TWO)

    def _that_launch(self, errors: Collection[Sequence[int]]) -> frozenset[int]:
        """Return the lines from which kernels were launched that failed, and of what called these lines."""
        kernels = [one.node for one in self._source.functions.values() if one.kernel]
        failed = [
            lines
            for lines in errors
            if lines and any(one.lineno <= lines[0] <= (one.end_lineno or 0) for one in kernels)
        ]
        return frozenset(line for lines in failed for line in lines[1:])

    @cached_property
    def _edits(self) -> list[Edit]:
        # In all of its places one size of a block gives another config's, with which the case may be right.
        tuned = self._source.tuned
        return [
            one
            for one in _candidates(self._source.text, self._name, frozenset(self._settled))
            if (self._masks or "mask" not in one.kind)
            and not (len(one.parts) > 1 and one.parts[0][1] in tuned and self._replaced_by(one) in tuned)
        ]

    def _replaced_by(self, edit: Edit) -> str:
        """Return the text of the file that an edit replaces first."""
        return self._source.between(*edit.parts[0][0])

    def mend(self, likely: Sequence[Edit] = (), may_fail: bool = False) -> Repair | None:
        """Return the first edit by rank with which all cases are right, or two edits; None if none is found.

        If there are no such edits, the one that makes most wrong cases right, and no right one wrong, is
        returned: the others have another mistake. `likely` are edits that have mended another function of the
        file: they are tried first. One that only removes something, or that changes many places, is not
        returned for some cases alone: what it changes may be right in the others. NotRunError if the unedited
        file does not run here, unless it `may_fail`; its cases may have failed on a GPU.
        """
        self._may_fail = may_fail
        if time.monotonic() > self._until:
            return None
        for draw in range(1 + MOST_REDRAWN):
            for bench in self._benches if draw else ():
                bench.redraw()
            first = self._benches[0].cheapest(self._source.text)
            base = self._aim(first, ())
            if base < 1.0:
                break
        if base < 0.0 and not may_fail:
            raise NotRunError("the file does not run in the interpreter of this machine")
        if base == 1.0:  # what is wrong with this case is not seen here
            return None
        known = self._reached(likely)
        if known:
            found, tried = self._on_top_of(known, base)
            if found:
                return found
            base = self._aim(first, ())
            self._one = round(self._one * (SHARE_OF_AGAIN if tried else 1.0))
        found = self._of_its_own(base)
        if found:
            return found
        mends, steps = self._sweep((), self._one, base)
        # What is wrong in this case may have no edit, and another mistake show in other cases.
        is_late = time.monotonic() > self._until
        other = None if mends or is_late else self._benches[0].unlike(self._source.text, first)
        if other is not None and (base := self._aim(other, ())) < 1.0:
            self._found = None  # edits have other effects there
            mends, more = self._sweep((), round(SHARE_OF_OTHER * self._one), base)
            steps = more if mends else steps
            if not mends:
                self._aim(first, ())
                self._found = None
        if mends and mends[0].is_all:
            return Repair((mends[0].edit,))
        bench = self._benches[0]
        # All that is not told is right with it, as all is with an edit that needs no other.
        for one in sorted(mends, key=lambda one: one.edit.goes_around):
            if bench.leaves_only_told(one.cases):
                return self._for_some(one)
        for one in [one for one in mends if one.edit.is_local][:MOST_STEPS]:
            text = self._source.with_replaced(one.edit.parts)
            helps = bench.is_most(one.cases) or bench.helps(self._source.text, text, one.cases)
            if len(one.cases) >= FEWEST_MENDED and helps:
                self._tell(one.edit)
                # Digits alone are lost in another way, or by the same formula: often no edit mends them.
                few = SHARE_OF_AGAIN if bench.leaves_near(text, one.cases) else 1.0
                second = self._second(one.edit, round(few * self._one), mended=one.cases)
                return second or self._for_some(one)
        left = self._two
        for step in steps[:MOST_STEPS]:  # half of what is left for each: the first ones bring it nearest
            left -= left // 2
            work = self._one if step.outputs else left
            second = self._second(step.edit, work, cheapest=bool(step.outputs))
            if second:
                return second
        return self._for_outputs(steps) or self._around(mends)

    def _around(self, mends: Sequence[Mend]) -> Repair | None:
        """Return an edit that goes around what is wrong in most cases, if all such edits are of one line.

        Of several the one with the most code, in which the mistake is; with a second one for what it leaves.
        """
        bench = self._benches[0]
        most = [one for one in mends if one.edit.goes_around and bench.is_most(one.cases)]
        if len({one.edit.line for one in most}) != 1:
            return None
        found = max(most, key=lambda one: len(one.edit.mistake))
        return self._second(found.edit, self._two, mended=found.cases) or self._for_some(found)

    def again(self, likely: Sequence[Edit]) -> Repair | None:
        """Return the edits that have mended another function of the file, if they mend cases here as well."""
        known, bench = self._reached(likely), self._benches[0]
        text = self._source.with_replaced([part for edit in known for part in edit.parts])
        count = len(self._benches)
        with ThreadPoolExecutor(count) as pool:
            parts = pool.map(
                lambda at: self._benches[at].mended_by(text, share=(at, count)), range(count if known else 0)
            )
            mended = frozenset(at for part in parts for at in part)
        if not mended or not bench.keeps():
            return None
        if bench.is_all(mended):
            return Repair((*known,))
        return Repair((*known,), bench.names(mended | bench.mended_large(text)))

    def mend_first(self, before: Sequence[Part] = ()) -> Edit | None:
        """Return the best edit, on top of others, that makes the first failing case right and one like it.

        None if none does: every failing case but the first ones may have another mistake.
        """
        base = self._aim(0, before)
        if base == 1.0:
            return None
        mends, _ = self._sweep(before, self._one, base)
        good = (one.edit for one in mends if len(one.cases) >= FEWEST_MENDED and not one.edit.goes_around)
        return next(good, None)

    def _of_its_own(self, base: float) -> Repair | None:
        """Return one or two edits, which mend all, of code that no right exercise of the file runs."""
        right = {function.name for name in self._right for function in self._source.reached_from(name)}
        reached = self._source.reached_from(self._name)
        spans = [self._source.span(one.node) for one in reached if one.name not in right]
        own = [
            edit
            for edit in self._edits
            if all(any(begin <= at < end for begin, end in spans) for (at, _), _ in edit.parts)
        ]
        if not self._right or not 0 < len(own) <= MOST_OWN:
            return None
        left, began = self._one // 2, time.monotonic()
        until = began + SHARE_OF_OWN * (self._until - began)
        for first in (None, *own):
            others = own[own.index(first) + 1 :] if first else own
            mends, _ = self._try_all(others, first.parts if first else (), base, left)
            if mends and mends[0].is_all:
                return Repair((first, mends[0].edit) if first else (mends[0].edit,))
            left -= self._took
            if left <= 0 or time.monotonic() > until:
                break
        self._one -= self._one // 2 - max(left, 0)
        return None

    def _for_some(self, found: Mend) -> Repair:
        """Return an edit with all cases that it makes right, the large ones as well."""
        bench, text = self._benches[0], self._source.with_replaced(found.edit.parts)
        return Repair((found.edit,), bench.names(found.cases | bench.mended_large(text)))

    def _for_outputs(self, steps: Sequence[Step]) -> Repair | None:
        """Return the first edit that makes an output right in several cases, though others are wrong."""
        bench = self._benches[0]
        for step in [one for one in steps if one.outputs][:MOST_STEPS]:
            if bench.mends_outputs(self._source.with_replaced(step.edit.parts), step.outputs):
                return Repair((step.edit,), frozenset(), bench.output_names(step.outputs))
        return None

    def _second(
        self, first: Edit, most: int, cheapest: bool = False, mended: Collection[int] = (), again: bool = True
    ) -> Repair | None:
        """Return an edit with a second one that mends what it leaves wrong.

        `most` is the work of the search: None where that is too little. The cheapest case is tried where
        every case shows what is left, and the one that is least right where many do not.
        """
        bench, text = self._benches[0], self._source.with_replaced(first.parts)
        # Of what is mended some cases were called last, that of the second search may be a small one.
        too_little = not mended and most < FEWEST_TRIES * bench.work()
        if too_little or time.monotonic() > self._until:
            return None
        at = bench.cheapest(text) if cheapest else bench.worst(text, mended)
        if not cheapest and bench.fails and not self._may_fail:  # where the file as it was did not
            return None
        base = self._aim(at, first.parts)
        # What is left may show in a case that is too large, or not at all.
        if base == 1.0 or most < FEWEST_TRIES * bench.work():
            return None
        found, _ = self._sweep(first.parts, most, base)
        if not found or found[0].is_all or not again:
            if not found or not found[0].is_all:
                return None
            alone, _ = self._try_all([found[0].edit], (), base, self._one)
            needed = not alone or not alone[0].is_all  # the first may change nothing that matters
            return Repair((first, found[0].edit) if needed else (found[0].edit,))
        # With the second one right, the first may be another: in a small case several help.
        return self._second(found[0].edit, most, mended=found[0].cases, again=False)

    def _reached(self, edits: Sequence[Edit]) -> list[Edit]:
        """Return the edits of code that the exercise's function runs."""
        reached = self._source.reached_from(self._name)
        spans = [self._source.span(function.node) for function in reached]
        every = [self._source.span(function.node) for function in self._source.functions.values()]

        def runs(at: int) -> bool:
            inside = [span for span in every if span[0] <= at < span[1]]
            return not inside or any(span in spans for span in inside)  # code of the module runs always

        return [edit for edit in edits if any(runs(begin) for (begin, _), _ in edit.parts)]

    def _on_top_of(self, known: Sequence[Edit], base: float) -> tuple[Repair | None, bool]:
        """Return the known edits, with one more if they do not mend all; None if they mend nothing.

        And whether others were tried on top of them: without that where they bring the case no nearer than
        its `base`.
        """
        bench, parts = self._benches[0], [part for edit in known for part in edit.parts]
        score = self._try(bench, parts)
        mended = bench.mended(self._source.with_replaced(parts), every=True)
        if not bench.keeps() or not (mended or score >= base + NEARER):
            return None, False
        if bench.is_all(mended):
            return Repair((*known,)), False
        base = self._aim(bench.worst(self._source.with_replaced(parts), mended), parts)
        few = SHARE_OF_AGAIN if bench.is_most(mended) else 1.0
        second, _ = self._sweep(parts, round(few * self._one), base)
        if second and second[0].is_all:
            # The known ones may be of other functions.
            alone, _ = self._try_all([second[0].edit], (), base, self._one)
            return Repair((*(() if alone and alone[0].is_all else known), second[0].edit)), True
        return (Repair((*known,), bench.names(mended)) if mended else None), True

    def _known(self, before: Sequence[Part]) -> Known:
        """Return the edits with the effect of each in the present case, on top of others."""
        edits = self._ordered(self._edits)
        effects, count = Effects(self._source, edits[:MOST_COMPARED], before), len(self._benches)
        shares = [(at, count) for at in range(count)]
        seen = dict[str, Sequence[int]]()
        with ThreadPoolExecutor(count) as pool:
            for found in pool.map(Bench.alternatives, self._benches, [effects.text] * count, shares):
                seen |= found
        return effects.known(seen, edits[MOST_COMPARED:])

    def _ordered(self, edits: Sequence[Edit]) -> list[Edit]:
        """Return edits in the order in which to try them, by what was seen of the case that is tried."""
        return by_evidence(self._source, edits, self._seen.suspects, self._seen.settled, self._errors)

    def _aim(self, at: int, parts: Sequence[Part]) -> float:
        """Aim at a failing case, as small as it can be; return how much of it the edited file gets right."""
        text, first = self._source.with_replaced(parts), self._benches[0]
        first.limit_s, first.most = LIMIT_S, None
        case = first.shrunk(text, at, self._sizes)
        first.aim(case, text)
        self._seen = first.observed(text)
        for bench in self._benches:
            bench.aim(case, text, self._seen)
        began = time.monotonic()
        base = first.score(text)
        limit_s = min(LIMIT_S, slowest(time.monotonic() - began))
        accesses = self._seen.accesses
        most = max(FEWEST_ACCESSES, int(SLOWER * accesses)) if accesses else MOST_ACCESSES
        for bench in self._benches:
            bench.limit_s, bench.most = limit_s, most
        return base

    def _sweep(self, before: Sequence[Part], work: int, base: float) -> tuple[list[Mend], list[Step]]:
        """Try edits on top of others with so much work; return those that mend cases, the best first, and
        those that bring the file nearer.

        Of edits with the same effect in the present case one is tried; the others if it mends that, and not
        all cases.
        """
        # A small search takes the effects that were seen last: to see them anew takes as long as its tries.
        if self._found is None or work >= self._one:
            self._found = self._known(before)
        known = self._found
        edits = self._ordered(known.edits)
        if self._of_digits and not before:
            edits = of_digits_first(edits)
        usual = self._benches[0].work()
        mends, steps = self._try_all(edits, before, base, work)
        if mends and mends[0].is_all and mends[0].edit.goes_around:
            # The mistake is in what that lets run: edits near to it are tried before the rest.
            near, others = list[Edit](), list[Edit]()
            for one in edits[self._tried :]:
                (near if self._is_in_one_function(one, mends[0].edit) else others).append(one)
            for some in (near, others):
                if mends[0].edit.goes_around and work > self._took:
                    work -= self._took
                    more, _ = self._try_all(some, before, base, work)
                    mends = sorted((*mends, *more), key=_most_first)
        if mends and mends[0].edit.mistake == LATER_TURNS:  # an edit may say what a program keeps
            anew = [one for one in known.edits if SET_ONCE in one.mistake]
            more, _ = self._try_all(anew, before, base, len(anew) * usual)
            mends = sorted((*mends, *more), key=_most_first)
        if mends and mends[0].is_all and mends[0].edit.is_of_several:  # one place may be enough
            twins, parts = known.twins([one.edit for one in mends]), {*mends[0].edit.parts}
            single = [one for one in twins if not one.is_of_several]
            single += [one for one in known.edits if parts > {*one.parts} and one not in single]
            more, _ = self._try_all(single, before, base, MOST_IN_CASES + len(single) * usual)
            mends = sorted((*mends, *more), key=_most_first)
        if mends and not mends[0].is_all:
            twins = known.twins([one.edit for one in mends])
            further = self._that_mend_further(twins, before, mends[0])
            rest = [one for one in twins if one not in further]
            left = len(further) * MOST_IN_CASES + len(twins) * usual
            more, _ = self._try_all([*further, *rest], before, base, left)
            mends = sorted((*mends, *more), key=_most_first)
        return mends, steps

    def _is_in_one_function(self, one: Edit, other: Edit) -> bool:
        """Return whether two edits are of one function, with its decorators."""
        for function in self._source.functions.values():
            first = min((each.lineno for each in function.node.decorator_list), default=function.node.lineno)
            last = function.node.end_lineno or first
            if first <= one.line <= last and first <= other.line <= last:
                return True
        return False

    def _that_mend_further(self, edits: Sequence[Edit], before: Sequence[Part], found: Mend) -> list[Edit]:
        """Return the edits with which the first case is right that the best one `found` leaves wrong."""
        bench, further, left = self._benches[0], list[Edit](), self._two
        for edit in edits:
            if left <= 0 or time.monotonic() > self._until:
                break
            with contextlib.suppress(ValueError):
                if bench.mends_further(self._source.with_replaced((*before, *edit.parts)), found.cases):
                    further.append(edit)
            left -= bench.work()
        return further

    def _try_all(
        self, edits: Sequence[Edit], before: Sequence[Part], base: float, work: int
    ) -> tuple[list[Mend], list[Step]]:
        """Try edits on top of others with so much work, up to the first that mends all; see `_sweep`.

        What is returned does not depend on which worker is faster.
        """
        best, mends, reached = [len(edits)], list[tuple[int, Mend]](), [len(edits)] * len(self._benches)
        known = self._found if self._found and self._found.before == tuple(before) else None
        selected = known.selected if known else {}
        whole = list[tuple[int, int]]()  # lanes and place of each edit that mends all
        steps = list[tuple[float, int, frozenset[int]]]()

        def run(number: int) -> int:
            bench, relevance, left = self._benches[number], Relevance(self._source), work
            bench.spent = 0
            for index in range(number, len(edits), len(self._benches)):
                left -= len(self._benches) * bench.spent  # on the last one, in all cases
                bench.spent = 0
                if index > best[0] or left <= 0 or time.monotonic() > self._until:
                    reached[number] = index
                    break
                if relevance.is_useless(edits[index]):
                    continue
                parts = (*before, *edits[index].parts)
                kept = self._kept(edits[index])
                score = self._try(
                    bench, parts, relevance.is_new(edits[index]), *kept, selected.get(edits[index].parts, {})
                )
                relevance.note(edits[index], bench.touched)
                if score == 1.0 and bench.stored_again() > self._seen.again:
                    continue  # right by chance: what one program stores, or one iteration, hides another's
                if score == 1.0:
                    launches = len(bench.launches())
                    edit = self._as_seen(edits[index], bench.launches(), bench.sharing())
                    lanes = bench.lanes()
                    if any(other < (lanes, index) for other in whole):
                        continue  # that one would be named, and to try all cases takes seconds
                    cases = bench.mended(self._source.with_replaced(parts))
                    # A condition may be right in another function, and hold in this one as well.
                    stays = bool(cases) and bench.keeps(beside=not edits[index].turns_off)
                    if stays and bench.holds(cases) and self._generalizes(bench, parts, cases):
                        edit = self._unless_neutral(bench, edit, before, cases, launches)
                        mends.append((index, Mend(edit, cases, bench.is_all(cases), lanes)))
                        if bench.is_all(cases) and edit.goes_around:
                            best[0] = min(best[0], index + FURTHER)
                        elif bench.is_all(cases):
                            further = self._further(lanes)
                            if edit.is_of_several:  # one place, which changes less, may be enough
                                further = max(further, FURTHER)
                            else:
                                whole.append((lanes, index))
                            best[0] = min(best[0], index + further)
                        elif not before and edit.is_local and bench.is_most(cases):
                            best[0] = min(best[0], index + MUCH_FURTHER)  # the rest is for the other mistake
                elif bench.gained:  # before all others: it mends what one mistake makes wrong
                    steps.append((-1.0 - len(bench.gained), index, bench.gained))
                    if not before:  # the rest of the time is for the other mistake
                        best[0] = min(best[0], index + FURTHER)
                elif score >= base + NEARER:
                    steps.append((-score, index, frozenset()))
            return work - left

        with ThreadPoolExecutor(len(self._benches)) as pool:
            self._took = max(pool.map(run, range(len(self._benches))))
        self._tried = min(*reached, best[0])
        found = sorted(((at, one) for at, one in mends if at <= best[0]), key=lambda one: one[0])
        by_cases = sorted((one for _, one in found), key=_most_first)
        nearer = [(rank, at, gained) for rank, at, gained in steps if at <= best[0]]
        nearer.sort(key=lambda one: one[:2])
        return by_cases, [Step(edits[at], gained) for _, at, gained in nearer]

    def _generalizes(self, bench: Bench, parts: Sequence[Part], cases: frozenset[int]) -> bool:
        """Return whether edits that mend cases are right in sizes that no listed case has."""
        return bench.holds_for_new_sizes(self._source.with_replaced(parts), self._source.text, cases)

    def _unless_neutral(
        self, bench: Bench, edit: Edit, before: Sequence[Part], cases: frozenset[int], launches: int
    ) -> Edit:
        """Return an edit, as one that goes around if a neutral value mends the same cases.

        One of a condition, of which both ways are right, says what is wrong with it. So does one with which
        there are more `launches` than in the unedited file: these were left out.
        """
        spent = bench.spent
        if edit.detail:
            more = launches > len(self._seen.launches) and not self._errors
            adds = more or self._decides(bench, edit, before, cases)
            edit = replace(edit, mistake=edit.detail) if adds else edit
            bench.spent = spent
            return edit
        # That it is always copied, compared by identity or rounded down says by itself what is wrong.
        said = (CONDITION_OF_COPY, ONE_OBJECT, PARTIAL_BLOCK)
        is_said = any(words in edit.mistake for words in said)
        for code, part in () if is_said else neutral(self._source, edit):
            is_right = self._try(bench, (*before, part)) == 1.0
            spent += bench.spent
            text = self._source.with_replaced((*before, part)) if is_right else ""
            if is_right and bench.mended(text) >= cases and bench.keeps():
                if not self._decides(bench, edit, before, cases):
                    edit = edit.deciding(code)
                break
        bench.spent = spent
        return edit

    def _decides(self, bench: Bench, edit: Edit, before: Sequence[Part], cases: frozenset[int]) -> bool:
        """Return whether both ways of a condition, as an edit makes it, are right where they are taken."""
        texts = [self._source.with_replaced((*before, part)) for part in guarded(self._source, edit)]
        if texts and all(bench.is_right_somewhere(text, cases) for text in texts):
            return True
        texts = [self._source.with_replaced((*before, part)) for part in spoiled(self._source, edit)]
        return bool(texts) and all(bench.is_wrong_somewhere(text, cases) for text in texts)

    def _further(self, lanes: int) -> int:
        """Return how many edits are still tried after one that mends all, by the lanes of its accesses.

        With more to do, programs may do what others leave out: of several edits that with least is believed.
        """
        most = self._seen.lanes
        return 0 if lanes <= most else FURTHER if lanes < MUCH_MORE * most else len(self._edits)

    def _as_seen(self, edit: Edit, launches: Sequence[int], sharing: Sequence[int]) -> Edit:
        """Return an edit as one that goes around what is wrong, if other lines launch kernels with it.

        Or if more programs share the work, each of which then makes fewer turns of a loop.
        """
        if ASKS_NOTHING in edit.kind:  # another way for what the condition should not let through
            return edit
        is_larger = any(now > was > 0 for now, was in zip(sharing, self._seen.sharing, strict=False))
        if is_larger and self._source.stores_in_loops and not self._source.kernels_with(edit.parts):
            return edit.with_more_programs()
        moves = any(text.count("\n") != self._source.between(*span).count("\n") for span, text in edit.parts)
        before = [*self._seen.launches]
        if not before and self._launching and not moves and self._launching.isdisjoint(launches):
            return edit.avoiding()  # the kernel that failed does not run with it
        same = len(launches) == len(before) if moves else [*launches] == before
        return edit if same or not launches or not before else edit.avoiding()

    def _kept(self, edit: Edit) -> tuple[int, tuple[str, ...]]:
        """Return how many launches an edit may leave as they are, and the kernels that it changes."""
        lines, changed = self._seen.launches, self._source.kernels_with(edit.parts)
        return (len(lines) if changed else self._source.launches_before(edit.parts, lines)), changed

    def _try(
        self,
        bench: Bench,
        parts: Sequence[Part],
        whole: bool = False,
        most: int = 0,
        changed: tuple[str, ...] = (),
        selected: Mapping[str, int] = MappingProxyType({}),
    ) -> float:
        try:
            text = self._source.with_replaced(parts)
        except ValueError:
            bench.touched, bench.spent = Touched(), 1
            return -1.0
        return bench.score(text, whole, most, changed, selected)
