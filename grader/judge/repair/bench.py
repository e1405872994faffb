"""A worker that tries edited files on the cases of one exercise."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import torch

from grader.course.spec import Case, Exercise
from grader.judge.inputs import same_bits
from grader.judge.repair.new_sizes import of_other_sizes
from grader.judge.repair.relevance import Touched, touched
from grader.judge.trial import LIMIT_S, LOOSELY, MOST_ELEMENTS, Called, Trial, elements
from grader.worker.messages import Kept, OneProgram
from grader.worker.submission_worker import SubmissionWorker
from grader.worker.witness.record import Index

WORK_OF_A_TRY = 10  # of reading a file and calling it, whatever it does
WORK_OF_SELECTED = 5  # of calling it, where nothing is read
WORK_OF_AUTOGRAD = 12
ACCESSES_OF_WORK, LANES_OF_WORK = 5, 6000  # loads and stores, and their lanes, of one unit
FEW_CASES = 4  # of which each must show what is said of one output
MOST_UNLIKE = 16  # failing cases among which one is looked for that shows another mistake
FIRST_CASES = 8  # of which the one with the least work is tried
PARTICULAR = 3.0  # times the work, of a case with one layout or number more
FEWEST_ELEMENTS = 64  # in a case of fewer too many edits look right
PARTS = 4  # of a grid, in each of which one program is looked at
LIKE = 0.2  # a smaller case shows the same mistake if its share of right elements differs by no more
NEARER = 0.15  # by which the share of right elements rises where an edit brings a file nearer
AS_BEFORE = 0.99  # share of the elements that are as they were, where an edit does not change a result
FARTHER = 1.1  # times the error of an output that was before
MOST_MENDED = 0.75  # share of the small failing cases
MOST_RECORDS = 4  # of one text; a process that has ended has lost its own
ROUND = 128  # of which a round size is a multiple: few blocks are larger
SMALL_SIZE = 16
MOST_WAYS = 24  # passing cases, and mended ones, in which one way of a condition is looked for
MOST_REPEATED, OTHER_DRAWS = 3, (1, 2)  # mended cases that are called on other inputs, and these
MOST_LIKE_FAILING, MOST_LIKE_PASSING = 4, 2  # cases of new sizes like the failing and the passing ones
MOST_IN_CASES = 5_000  # work of an edit in all failing cases that are small: it may make calls much longer
MISSES = 3  # failing cases that an edit leaves wrong, after which the others are not looked at
SHRINKING_S = 3.0  # for a smaller case; calls without an end take longest
KEEPING_S = 10.0  # to read a text with all alternatives, which is long
LARGE_LIMIT_S = 10.0  # of one call of a larger case, which few texts get to
LARGE_S = 0.5  # for which large cases are called, as long as each is right
SLOWER, SHORTEST_S = 4.0, 1.0  # a call that takes so many times as long as the unedited file's has no end
FEWEST_ACCESSES = 400  # that each call may have
MOST_ACCESSES = 2000  # that it may have where those of the file are not known, because it fails


class Observed(NamedTuple):
    """What a text does in one case.

    The lines of its launches; how many lanes its accesses have, and how many of these store an element that
    another store has written; its outputs, and which of them are right; and a program that stores wrong
    elements, whichever others run, None if none can run alone or if it is the only one. `suspects` are the
    lines of accesses that are wrong by their address or mask, `settled` those that store only right outputs.
    `sharing` has the number of programs of each launch whose programs ask for it, and 0 for the others.
    `accesses` are the loads and stores of all programs, 0 if the call fails.
    """

    launches: Sequence[int] = ()
    lanes: int = 0
    again: int = 0
    outputs: Sequence[torch.Tensor] = ()
    right: Sequence[bool] = ()
    only: OneProgram | None = None
    suspects: frozenset[int] = frozenset()
    settled: frozenset[int] = frozenset()
    sharing: Sequence[int] = ()
    accesses: int = 0


class Bench:
    """A worker with the cases that it tries edited files on, in its own part of the lent memory."""

    def __init__(
        self,
        worker: SubmissionWorker,
        exercise: Exercise,
        failing: Sequence[Case],
        passing: Sequence[Case],
        start: int,
        told: Collection[str] = (),
        beside: Sequence[tuple[Exercise, Case]] = (),
        until: float = math.inf,
    ):
        """What is not called by `until`, seconds of the monotonic clock, is taken for wrong."""
        self._worker, self._exercise, self._start, self._until = worker, exercise, start, until
        self._drawn = 0  # the number of the inputs on which edits are tried
        self._told = {case.name for case in failing if case.name in told}
        self._small = [case for case in failing if elements(case) <= MOST_ELEMENTS]
        if all(case.name in self._told for case in self._small):  # those that are not told come first
            self._small = list(dict.fromkeys((*failing[:1], *self._small)))
        self._large = [case for case in failing if case not in self._small]
        self.failing = [self._trial(case) for case in self._small]
        few = [case for case in passing if elements(case) <= MOST_ELEMENTS]
        self._passing = [self._trial(case) for case in few]
        self._cases = [*failing, *passing]
        self._new: dict[tuple[str, int], Trial | None] = {}  # by a case, and how many give the range
        self._beside = [Trial(one, case, worker.session.seed, start) for one, case in beside]
        self._target = self.failing[0]
        self._base: str | None = None
        self._seen = Observed()
        self.alternatives_text = ""  # a text with other expressions, which are selected for a call
        self.touched = Touched()  # by the last text
        self.fails = False
        self.gained = frozenset[int]()  # outputs that the last text makes right, where others stay wrong
        self.spent = 0  # work of the last text, in all cases that it was called in
        self.limit_s = LIMIT_S
        self.most: int | None = None  # loads and stores of a call of an edited file
        self._records = 0  # of the launches of the base

    def _trial(self, case: Case) -> Trial:
        return Trial(self._exercise, case, self._worker.session.seed, self._start, self._drawn)

    def redraw(self) -> None:
        """Try edits on other inputs from now on: of some mistakes not all inputs of a failing case tell."""
        self._drawn += 1
        self.failing = [self._trial(case) for case in self._small]

    def aim(self, case: Case, base: str | None = None, seen: Observed | None = None) -> None:
        """Try edits of the text `base` on this case from now on, of which `seen` was seen.

        Each runs one program first, if one was seen to be wrong.
        """
        self._target, self._base, self._seen = self._trial(case), base, seen or Observed()
        self._records = 0

    def score(
        self,
        text: str,
        whole: bool = False,
        most: int = 0,
        changed: tuple[str, ...] = (),
        selected: Mapping[str, int] = MappingProxyType({}),
    ) -> float:
        """Return how much of the case that it aims at a text gets right; less than 0 if it fails.

        `self.touched` says afterwards which outputs the text has changed, and `self.spent` its work. If
        `whole`, no program runs alone where that would not show whether outputs that were right still are.
        At most so many launches, before the first of a kernel that is `changed`, are not run again. If
        expressions of the text with alternatives are `selected`, this text is the same with them.
        """
        target, worker, only = self._target, self._worker, self._seen.only
        self.touched, self.gained = Touched(), frozenset()
        kept = self._kept(most, changed)
        own = WORK_OF_SELECTED if selected else WORK_OF_A_TRY
        self.spent = own
        if worker.start() or (
            worker.keep(self.alternatives_text, KEEPING_S)
            if selected
            else worker.edit(text, LIMIT_S, self._base)
        ):
            return -1.0
        if only is not None and not (whole and any(self._seen.right)):
            called = target.call(
                worker, limit_s=self.limit_s, bounds=True, only=only, kept=kept, most=self.most,
                selected=selected,
            )  # fmt: skip
            self.spent = self.work(own) if called else own
            share = target.right_of_one(called, worker.witnessed)
            if share is not None:
                self._compare(called, one_program=True)
                return share
        called = target.call(
            worker, limit_s=self.limit_s, bounds=True, kept=kept, most=self.most, selected=selected
        )
        self.spent = self.work(own) if called else own
        self._compare(called, one_program=False)
        share = target.share(called, worker.witnessed)
        if share < 1.0:
            self.gained = self._gained(called)
            return share
        # Few texts get here. Races are looked for now, which takes as long as the call.
        if worker.start() or worker.edit(text, LIMIT_S):
            return -1.0
        return target.right(worker, witnessed=True, limit_s=self.limit_s)

    def _kept(self, most: int, changed: tuple[str, ...]) -> Kept | None:
        """Return which launches are repeated; they are recorded first, once in a process."""
        if not most or self._base is None or len(self._seen.launches) < 2:
            return None
        key, worker = self._target.case.name, self._worker
        if not (self._records and worker.has_base(self._base)):
            if (
                self._records >= MOST_RECORDS
                or worker.start()
                or worker.edit(self._base, LIMIT_S, self._base)
            ):
                return None
            self._records += 1
            self._target.call(worker, kept=Kept(key))
        return Kept(key, most, changed)

    def _gained(self, called: Called | None) -> frozenset[int]:
        """Return the outputs that were wrong and are right in a call, unless a right one is wrong now."""
        before = self._seen.right
        if called is None or not called.is_clean or sum(before) + 1 >= len(before):
            return frozenset()
        after = self._target.right_outputs(called)
        if any(was and not now for was, now in zip(before, after, strict=True)):
            return frozenset()
        return frozenset(at for at, now in enumerate(after) if now and not before[at])

    def mends_outputs(self, text: str, outputs: Collection[int]) -> bool:
        """Return whether a text makes these outputs right in each of the first failing cases."""
        for trial in self.failing[:FEW_CASES]:
            called = self._called(trial, text)
            right = trial.right_outputs(called) if called else []
            if not right or not all(right[at] for at in outputs):
                return False
        return True

    def leaves_near(self, text: str, mended: Collection[int]) -> bool:
        """Return whether most cases that a text does not mend are right with it but for their digits."""
        left = [trial for at, trial in enumerate(self.failing) if at not in mended][:FEW_CASES]
        called = [(trial, self._called(trial, text)) for trial in left]
        return sum(found is not None and trial.is_near(found) for trial, found in called) > len(left) / 2

    def output_names(self, outputs: Collection[int]) -> tuple[str, ...]:
        """Return the names of outputs by their numbers."""
        return tuple(self._exercise.outputs[at] for at in sorted(outputs))

    def _compare(self, called: Called | None, one_program: bool) -> None:
        if called is not None and self._seen.right:
            masks = self._target.written(called) if one_program else [None] * len(called.outputs)
            self.touched = touched(self._seen.outputs, self._seen.right, called.outputs, masks)

    def launches(self) -> list[int]:
        """Return the lines of the launches that the last call made."""
        return [one.line for one in self._worker.witnessed.launches]

    def sharing(self) -> list[int]:
        """Return the programs of each launch of the last call if these ask how many they are, else 0."""
        return [math.prod(one.grid) if one.is_asked_for else 0 for one in self._worker.witnessed.launches]

    def lanes(self) -> int:
        """Return how many lanes the accesses of the last call have, those that are masked off as well."""
        return self._worker.witnessed.lanes

    def stored_again(self) -> int:
        """Return how many lanes of the last call stored an element that another store had written."""
        return self._worker.witnessed.again

    def observed(self, text: str) -> Observed:
        """Return what a text does in the case that it aims at; nothing if it fails."""
        target, worker = self._target, self._worker
        if worker.start() or worker.edit(text, LIMIT_S, self._base):
            return Observed()
        whole = target.call(worker, witnessed=True)
        if whole is None:
            return Observed()
        lines, lanes, again = self.launches(), self.lanes(), self.stored_again()
        sharing, accesses = self.sharing(), self._worker.witnessed.accesses
        grids, suspects = [one.grid for one in worker.witnessed.launches], self._suspects(whole)
        if self._exercise.follow or self._exercise.bad_choice:  # elements do not stand for themselves
            return Observed(lines, lanes, again, suspects=suspects, sharing=sharing, accesses=accesses)
        right = target.right_outputs(whole)
        settled = self._storing_only(right)
        only = self._wrong_program(whole, grids)
        seen = lines, lanes, again, whole.outputs, right, only, suspects, settled, sharing
        return Observed(*seen, accesses)

    def _storing_only(self, right: Sequence[bool]) -> frozenset[int]:
        """Return the lines that store outputs that are right, and no other one."""
        buffers = self._target.buffers[-len(right) :] if right else ()
        is_right = {one.tensor.offset: good for one, good in zip(buffers, right, strict=True)}
        stores = [one for one in self._worker.witnessed.reaches if one.writes and one.offset in is_right]
        wrong = {one.line for one in stores if not is_right[one.offset]}
        return frozenset({one.line for one in stores} - wrong)

    def _suspects(self, whole: Called) -> frozenset[int]:
        """Return the lines that reach outside of a tensor, race, or should store what nobody does."""
        seen = self._worker.witnessed
        found = {one.line for one in seen.outside} | {line for one in seen.races for line in one.lines}
        unwritten = any(bool(mask.any()) for mask in whole.untouched)
        if unwritten and not found:
            offsets = {buffer.tensor.offset for buffer in self._target.buffers[-len(whole.outputs) :]}
            found = {one.line for one in seen.reaches if one.writes and one.offset in offsets}
        return frozenset(found)

    def _wrong_program(self, whole: Called, grids: Sequence[Index]) -> OneProgram | None:
        """Return a program that stores wrong elements; `grids` are those of the `whole` call."""
        target, worker = self._target, self._worker
        for launch, grid in enumerate(grids):
            count = math.prod(grid)
            if count <= 1 and len(grids) == 1:
                return None
            found: list[tuple[float, int]] = []
            for number in sorted({count * part // PARTS for part in range(PARTS)} | {max(0, count - 1)}):
                called = target.call(worker, bounds=True, only=OneProgram(launch, number))
                share = target.right_of_one(called, worker.witnessed)
                if called is None or not _is_part(called, target.written(called), whole):
                    break
                if share is not None:
                    found.append((share, number))
            else:
                if found:
                    return OneProgram(launch, min(found)[1])
        return None

    def alternatives(self, text: str, share: tuple[int, int]) -> Mapping[str, Sequence[int]]:
        """Return what a text that compares expressions finds of a share of them; nothing if it fails."""
        self.alternatives_text = text
        if self._worker.start() or self._worker.keep(text, KEEPING_S):
            return {}
        called = self._target.call(self._worker, bounds=True, only=self._seen.only, compared=share)
        return self._worker.alternatives if called else {}

    def work(self, of_a_try: int = WORK_OF_A_TRY) -> int:
        """Return the work of the last score, as the loads and stores of its call show it."""
        seen = self._worker.witnessed
        own = of_a_try + self._exercise.differentiable * WORK_OF_AUTOGRAD
        return own + seen.accesses // ACCESSES_OF_WORK + seen.lanes // LANES_OF_WORK

    def cheapest(self, text: str) -> int:
        """Return the number of a failing case whose call does the least work, one of the first few.

        A call that fails has done an unknown part of its work: others come before it. A case with layouts or
        numbers that others do not have may show a second mistake: work on it counts more.
        """
        if len(self.failing) == 1 or self._worker.start() or self._worker.edit(text, LIMIT_S):
            return 0
        found: list[tuple[bool, bool, float, int]] = []
        plain = min(_particulars(trial.case) for trial in self.failing)
        others = sum(trial.case.name not in self._told for trial in self.failing)  # they come first
        for at, trial in enumerate(self.failing[: min(FIRST_CASES, others or FIRST_CASES)]):
            tiny = elements(trial.case) < FEWEST_ELEMENTS
            if not tiny or at == 0:
                score = trial.right(self._worker, limit_s=LIMIT_S, bounds=True)
                if score < 1.0:
                    more = PARTICULAR ** (_particulars(trial.case) - plain)
                    found.append((score < 0.0, tiny, self.work() * more, at))
        return min(found)[3] if found else 0

    def unlike(self, text: str, at: int) -> int | None:
        """Return the number of a failing case of which a text gets another share right than of number `at`.

        Of several the one with the largest difference. None if no other case differs, or only tiny ones do.
        """
        if at >= len(self.failing) or self._worker.start() or self._worker.edit(text, LIMIT_S):
            return None
        own = self.failing[at].right(self._worker, limit_s=LIMIT_S, bounds=True)
        found = [
            (abs(trial.right(self._worker, limit_s=LIMIT_S, bounds=True) - own), -number)
            for number, trial in enumerate(self.failing[:MOST_UNLIKE])
            if number != at and trial.case.name not in self._told and elements(trial.case) >= FEWEST_ELEMENTS
        ]
        difference, number = max(found, default=(0.0, 0))
        return -number if difference > LIKE else None

    def shrunk(self, text: str, at: int, sizes: Sequence[Case]) -> Case:
        """Return a smaller case that shows what the failing case number `at` shows of a text, or that case.

        Its sizes are those of other cases, one after the other as small as they can be. A large case is not
        called: there a smaller one is taken that is wrong in any way.
        """
        case, end = [*self._small, *self._large][at], time.monotonic() + SHRINKING_S
        self.aim(case)
        # Beside those that are told a large one counts: a smaller one may have what is told.
        called = elements(case) <= MOST_ELEMENTS or (self._told and at < len(self._small))
        base = self.score(text) if called else None
        for name, value in case.params.items():
            if type(value) is not int:
                continue
            seen = {one.params.get(name) for one in sizes} - {value}
            for other in sorted(one for one in seen if type(one) is int and 0 < one < value):
                smaller = replace(case, params={**case.params, name: other})
                if elements(smaller) < FEWEST_ELEMENTS:
                    continue
                if time.monotonic() > end:
                    return case
                try:
                    self.aim(smaller)
                except (RuntimeError, ValueError):  # no such case can be drawn
                    continue
                if _is_like(self.score(text), base):
                    case = smaller
                    break
        return case

    def keeps(self, beside: bool = True) -> bool:
        """Return whether the text of the last score is right in the cases that were right before.

        Those of other exercises are left out without `beside`.
        """
        return all(self._is_right(trial) for trial in (*self._passing, *(self._beside if beside else ())))

    def holds(self, cases: Collection[int]) -> bool:
        """Return whether the text of the last score is right in some cases on other inputs as well.

        Where the largest element of a row lies, say, a wrong text may be right by chance.
        """
        every = [*self._small, *self._large]
        return all(
            self._is_right(Trial(self._exercise, every[at], self._worker.session.seed, self._start, drawn))
            for at in sorted(cases)[:MOST_REPEATED]
            for drawn in OTHER_DRAWS
        )

    def holds_for_new_sizes(self, text: str, original: str, cases: frozenset[int]) -> bool:
        """Return whether a text that mends some cases is right in cases of sizes that no listed case has.

        If it mends all, in each of them. If not, in those in which the `original` is right, and in one at
        least of those like the mended ones, if the original is wrong there: the others may show what it
        leaves.
        """
        passing = self._new_like(self._passing, MOST_LIKE_PASSING)
        if self.is_all(cases):
            always, once = [*self._new_like(self.failing, MOST_LIKE_FAILING), *passing], []
        else:
            mended = [trial for at, trial in enumerate(self.failing) if at in cases]
            always = [trial for trial in passing if self._right_in(trial, original)]
            once = [
                trial
                for trial in self._new_like(mended, MOST_LIKE_FAILING, within=mended)
                if not self._right_in(trial, original)
            ]
        if not (always or once):
            return True
        if self._worker.start() or self._worker.edit(text, LIMIT_S):
            return False
        return all(map(self._is_right, always)) and (not once or any(map(self._is_right, once)))

    def _new_like(self, listed: Sequence[Trial], most: int, within: Sequence[Trial] = ()) -> list[Trial]:
        """Return small cases like the first of those listed, of other sizes: in the range of all cases, or of
        some.
        """
        cases = [trial.case for trial in within] or self._cases
        found = list[Trial]()
        for trial in (one for one in listed if not one.case.is_far):
            if len(found) >= most:
                break
            key = trial.case.name, len(cases)
            if key not in self._new:
                self._new[key] = self._of_other_sizes(trial, cases)
            new = self._new[key]
            found += [new] if new else []
        return found

    def _of_other_sizes(self, trial: Trial, cases: Sequence[Case]) -> Trial | None:
        shapes = [buffer.tensor.shape for buffer in trial.buffers]
        dimensions = frozenset(size for shape in shapes for size in shape)
        for other in of_other_sizes(trial.case, cases, dimensions, FEWEST_ELEMENTS, MOST_ELEMENTS):
            with contextlib.suppress(RuntimeError, ValueError):  # no such case can be drawn
                return self._trial(other)
        return None

    def _right_in(self, trial: Trial, text: str) -> bool:
        if self._worker.start() or self._worker.edit(text, LIMIT_S):
            return False
        return trial.right(self._worker, witnessed=True, limit_s=LIMIT_S) == 1.0

    def is_right_somewhere(self, text: str, mended: Collection[int]) -> bool:
        """Return whether a text is right in a passing case, or in one of the failing ones that are mended."""
        some = [  # conditions often ask whether blocks are whole: they are in round sizes
            *self._in_round_sizes(self.failing[0].case),
            *sorted(self._passing, key=lambda trial: -_roundness(trial.case))[:MOST_WAYS],
            *(self.failing[at] for at in sorted(mended)[:MOST_WAYS] if at < len(self.failing)),
        ]
        return any(self._right_in(trial, text) for trial in some)

    def _in_round_sizes(self, case: Case) -> Iterator[Trial]:
        """Give cases like one: in each, one size is a multiple of a block, and the others are small."""
        sizes = {name: one for name, one in case.params.items() if type(one) is int and one > SMALL_SIZE}
        for name, size in sizes.items():
            params = {**case.params, **dict.fromkeys(sizes, SMALL_SIZE), name: -(-size // ROUND) * ROUND}
            if elements(replace(case, params=params)) <= MOST_ELEMENTS:
                with contextlib.suppress(RuntimeError, ValueError):  # no such case can be drawn
                    yield self._trial(replace(case, params=params))

    def is_wrong_somewhere(self, text: str, mended: Collection[int]) -> bool:
        """Return whether a text is wrong in one of the failing cases that are mended."""
        some = [self.failing[at] for at in sorted(mended)[:MOST_WAYS] if at < len(self.failing)]
        return any(not self._right_in(trial, text) for trial in some)

    def mended_by(self, text: str, every: bool = False, share: tuple[int, int] = (0, 1)) -> frozenset[int]:
        """Return which failing cases a text gets right that was not scored: see `mended`."""
        if self._worker.start() or self._worker.edit(text, LIMIT_S):
            return frozenset()
        return self.mended(text, every, share)

    def mended(self, text: str, every: bool = False, share: tuple[int, int] = (0, 1)) -> frozenset[int]:
        """Return which failing cases a text gets right, all of them if it is every one.

        It is that of the last score. Of a text that leaves many wrong only the first few are looked at,
        unless `every` case is asked for. With a `share`, (1, 2) for the second of two, only its small cases
        are called, and the large ones by the first.
        """
        found, missed, most = set[int](), 0, self.spent + MOST_IN_CASES
        mine = [pair for pair in enumerate(self.failing) if pair[0] % share[1] == share[0]]
        for at, trial in mine:
            if self.spent > most:
                return frozenset()
            if self._is_right(trial):
                found.add(at)
            elif trial.case.name not in self._told:
                missed += 1
            if missed >= MISSES and len(found) < 2 and not every:
                return frozenset()
        if (
            missed == 0 and share[0] == 0
        ):  # few edits get here, and most do not need the inputs of large cases
            found |= self.mended_large(text)
        return frozenset(found)

    def mends_further(self, text: str, mended: Collection[int]) -> bool:
        """Return whether a text is right in the first failing case that is neither `mended` nor told."""
        every = [*self._small, *self._large]
        left = [one for at, one in enumerate(every) if at not in mended and one.name not in self._told]
        return bool(left) and self._right_in(self._trial(left[0]), text)

    def mended_large(self, text: str) -> frozenset[int]:
        """Return which of the large failing cases a text gets right.

        Those of other kinds come first; if all were right when some time is up, so are the rest.
        """
        if self._worker.start() or self._worker.edit(text, LIMIT_S):
            return frozenset()
        cases, kinds = [*enumerate(self._large, len(self.failing))], Counter[object]()
        ordered = list[tuple[int, int, Case]]()
        for at, case in cases:
            kind = case.dtype, str(case.params.get("values")), tuple(sorted(case.layouts)), case.allocates
            ordered.append((kinds[kind], at, case))
            kinds[kind] += 1
        right, until = set[int](), time.monotonic() + LARGE_S
        for number, (_, at, case) in enumerate(sorted(ordered, key=lambda one: one[:2])):
            if time.monotonic() > until and len(right) == number:
                return frozenset(at for at, _ in cases)
            right |= {at} if self._is_right(self._trial(case), LARGE_LIMIT_S) else set()
        return frozenset(right)

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
            if is_farther or not (is_nearer or all(map(_is_as_before, old.outputs, new.outputs))):
                return False
        return True

    def _called(self, trial: Trial, text: str) -> Called | None:
        if self._worker.start() or self._worker.edit(text, LIMIT_S):
            return None
        return trial.call(self._worker, witnessed=True)

    def worst(self, text: str, mended: Collection[int] = ()) -> int:
        """Return the number of the failing case of which a text gets least right, the first of several.

        A larger one, of those that are not known to be `mended`, only if every other one is right. Afterwards
        `self.fails` says whether the text fails there, or has no end.
        """
        self.fails = True
        if self._worker.start() or self._worker.edit(text, LIMIT_S):
            return 0
        scores = list[float]()
        for trial in self.failing:
            scores.append(trial.right(self._worker, witnessed=True, limit_s=LIMIT_S))
            if scores[-1] < 0.0:  # it fails, or has no end: nothing is worse
                return len(scores) - 1
        self.fails = False
        larger = [at for at in range(len(scores), len(scores) + len(self._large)) if at not in mended]
        return larger[0] if min(scores) == 1.0 and larger else scores.index(min(scores))

    def names(self, mended: frozenset[int]) -> frozenset[str]:
        """Return the names of failing cases by their numbers."""
        every = [*self._small, *self._large]
        return frozenset(every[at].name for at in mended)

    def is_most(self, mended: frozenset[int]) -> bool:
        """Return whether these are so many of the failing cases that few have something else.

        Those that are told do not count: they have something else.
        """
        others = {at for at, case in enumerate(self._small) if case.name not in self._told}
        return len(mended) >= MOST_MENDED * (len(others) or len(self._small))

    def leaves_only_told(self, mended: frozenset[int]) -> bool:
        """Return whether all failing cases but those that are told are mended."""
        left = [case for at, case in enumerate((*self._small, *self._large)) if at not in mended]
        return bool(self._told) and all(case.name in self._told for case in left)

    def is_all(self, mended: frozenset[int]) -> bool:
        """Return whether these are all failing cases."""
        return len(mended) == len(self._small) + len(self._large)

    def _is_right(self, trial: Trial, limit_s: float = LIMIT_S) -> bool:
        if time.monotonic() > self._until:
            return False
        is_right = trial.right(self._worker, bounds=True, limit_s=limit_s) == 1.0
        self.spent += self.work()
        return is_right


def _roundness(case: Case) -> int:
    """Return the largest power of two that divides all sizes of a case but those of 1."""
    sizes = [size for size in case.params.values() if type(size) is int and size > 1]
    return min((size & -size for size in sizes), default=0)


def _particulars(case: Case) -> int:
    """Return how many sizes, numbers and layouts a case has."""
    return len(case.params) + len(case.layouts) + case.allocates


def slowest(seconds: float) -> float:
    """Return how long the call of an edited file may take where that of the unedited one took `seconds`."""
    return max(SHORTEST_S, SLOWER * seconds)


def _is_like(score: float, base: float | None) -> bool:
    """Return whether the score of a smaller case is one of the same mistake as the `base` score, if known.

    A call that fails, or of which no element is a number, is like none that does better.
    """
    if base is None:
        return 0.0 <= score < 1.0
    same = (score < 0.0, score == 0.0) == (base < 0.0, base == 0.0)
    return score < 1.0 and abs(score - base) <= LIKE and same


def _is_as_before(old: torch.Tensor, new: torch.Tensor) -> bool:
    """Return whether two results are the same but for digits in nearly all elements."""
    same = torch.isclose(new.double(), old.double(), rtol=LOOSELY, atol=0.0, equal_nan=True)
    return float(same.double().mean()) >= AS_BEFORE if same.numel() else True


def _is_part(called: Called, written: Sequence[torch.Tensor], whole: Called) -> bool:
    """Return whether what one program has written is what the whole call leaves there."""
    both = zip(called.outputs, whole.outputs, written, strict=True)
    return all(same_bits(one[mask], other[mask]) for one, other, mask in both)
