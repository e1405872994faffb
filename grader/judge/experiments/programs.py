"""Say that a launch has too few programs, or too many, found by launches with other numbers of them.

The call is made with one launch changed along one axis of its grid, and the smallest number is found with
which every element is right, or the largest with which no program reads or writes outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from grader.course.spec import Case, Exercise
from grader.judge import comparison
from grader.judge.experiments.work import MOST, work
from grader.judge.repair.edit import LATER_TURNS
from grader.judge.trial import Called, Trial
from grader.worker.messages import OneProgram, Programs
from grader.worker.shared_memory import Tensor
from grader.worker.submission_worker import SubmissionWorker
from grader.worker.witness.record import (
    MOST_LAUNCHES,
    MOST_REACHES,
    Index,
    Launch,
    Reach,
    Witnessed,
)

MOST_PROGRAMS = 4096  # of a launch that is tried
MOST_ALONE = 64  # programs that are looked at by themselves, the last ones
MOST_CHANGED = 4  # launches that are changed, one at a time
NEVER_STORED = "no program stores"  # in a fact of which many mistakes may be the cause
LAUNCHES = "launches"  # in a cause: it is the number of programs of that line
NEEDED = "are needed"  # in a cause: with so many programs the case is right in every way
# Where all that is wrong was never written, and programs share the work.
LEFT_OUT = (
    "some elements are left out: the programs are too few, or each makes too few turns, or steps too far"
)
NOT_RIGHT = 0.999  # the largest share of right elements where one is wrong
NEARER = 1e-3  # by which the share of right elements must rise, so that still more programs are tried


class Seen(NamedTuple):
    """What a call did: the share of elements that were written, and that are right, and what it broke."""

    written: float
    right: float
    is_clean: bool  # nothing that is not an output was written
    witnessed: Witnessed

    @property
    def leaves_out(self) -> bool:
        """Whether elements were never written, and all others are right."""
        return self.written < 1.0 and self.right > min(self.written, NOT_RIGHT) - 1e-6

    @property
    def is_right(self) -> bool:
        """Whether every element is right."""
        return self.right == 1.0

    @property
    def is_whole(self) -> bool:
        """Whether every element is right, and nothing else is wrong."""
        return self.is_right and self.is_clean and self.witnessed == Witnessed()


class Bench:
    """Calls of one case with other numbers of programs."""

    def __init__(self, worker: SubmissionWorker, exercise: Exercise, case: Case):
        self._worker, self._trial = worker, Trial(exercise, case, worker.session.seed)
        self._exercise, self._case = exercise, case
        self._seen = dict[Programs | None, Seen | None]()
        self._left = MOST  # work that may still be done
        self._other: Trial | None = None
        self.untouched: list[torch.Tensor] = []  # of each output, in the first call
        first = self._trial.call(worker, witnessed=True)
        self._seen[None] = self._judged(first)
        if first:
            self.untouched = first.untouched
        self.trial = self._trial
        # Memory of the file's own keeps what an earlier call with more programs left there, as if these
        # programs had stored it: other numbers go there first.
        own = any(one.writes and one.offset < 0 for one in worker.witnessed.reaches)
        if first and own:
            self._other = Trial(exercise, case, worker.session.seed, drawn=1)

    @property
    def plain(self) -> Seen | None:
        """What the call without a change did; None if it failed."""
        return self._seen[None]

    def with_programs(self, programs: Programs) -> Seen | None:
        """Return what the call does with another grid; None if it fails, or if no work is left."""
        if programs not in self._seen:
            if self._left <= 0:
                return None
            if self._other is not None:
                # Watched, so that a store outside of a tensor does not spoil what is there.
                self._other.call(self._worker, witnessed=True)
            called = self._trial.call(self._worker, witnessed=True, programs=programs)
            self._seen[programs] = self._judged(called)
        return self._seen[programs]

    def idle(self, number: int, launch: Launch) -> int | None:
        """Return a program of the only launch that stores nothing by itself; None if none is found."""
        count = launch.grid[0]
        if len(self._worker.witnessed.launches) != 1 or math.prod(launch.grid) != count:
            return None
        for one in (*range(count - 1, -1, -1),)[:MOST_ALONE]:
            called = self._trial.call(self._worker, bounds=True, only=OneProgram(number, one))
            if called is None:
                return None
            if not any(bool(mask.any()) for mask in self._trial.written(called)):
                return one
        return None

    def _judged(self, called: Called | None) -> Seen | None:
        if called is None:
            self._left = 0  # its process may have ended
            return None
        self._left -= work(self._worker.witnessed) * (2 if self._other is not None else 1)
        finding, _ = comparison.examine(self._exercise, self._case, self._trial.expected, called.outputs)
        total = sum(one.numel() for one in called.untouched)
        left = sum(int(one.sum()) for one in called.untouched)
        # `finding` is of the first wrong output alone; the others count by whether they were written.
        right = 1.0 if finding is None else min(1.0 - (left + finding.wrong) / (2 * total), NOT_RIGHT)
        return Seen(1.0 - left / total, right, called.is_clean, self._worker.witnessed)


def mistaken_programs(worker: SubmissionWorker, exercise: Exercise, case: Case) -> str:
    """Say which launch of the worker's present file has too few programs, or too many; "" if none has.

    `case` is a wrong one, runs in the interpreter, and is not hidden.
    """
    if exercise.follow is not None:  # what is expected follows from a random choice: values are not judged
        trial = Trial(exercise, case, worker.session.seed)
        called = trial.call(worker, witnessed=True)
        return _never_stored(trial, called.untouched, worker.witnessed) if called else ""
    bench = Bench(worker, exercise, case)
    plain = bench.plain
    if plain is None or plain.is_whole or len(plain.witnessed.launches) >= MOST_LAUNCHES:
        return ""
    for number, launch in enumerate(plain.witnessed.launches[:MOST_CHANGED]):
        if not launch.line:
            continue
        words = _too_few(bench, plain, number, launch)
        if words and not launch.is_asked_for:
            return words
        words = words or _too_many(bench, plain, number, launch)
        if words:
            return words
    return _left_out(bench.trial, bench.untouched, plain.witnessed) or _never_stored(
        bench.trial, bench.untouched, plain.witnessed
    )


def _axes(launch: Launch) -> Iterator[int]:
    """Give the axes of a grid, those with several programs first."""
    yield from sorted(range(3), key=lambda axis: (launch.grid[axis] < 2, axis))


def _too_few(bench: Bench, plain: Seen, number: int, launch: Launch) -> str:
    """Say with how many programs all is right, or written; along every axis of the grid with which it is."""
    aims: list[Callable[[Seen], bool]] = []
    if not plain.is_right:
        aims.append(lambda one: one.is_right)
    if plain.written < 1.0 and plain.is_clean:  # else addresses are wrong, where more programs store more
        aims.append(lambda one: one.written == 1.0)
    for is_enough in aims:
        found = list[tuple[Index, Seen]]()
        for axis in _axes(launch):
            few, enough = _bracket(bench, plain, number, launch, axis, is_enough)
            if enough is None:
                continue
            size = _smallest(bench, number, axis, few, enough, is_enough)
            seen = bench.with_programs(Programs(number, axis, size))
            # Where more programs store what others have stored, they only hide what those leave out.
            if seen is not None and seen.witnessed.again <= plain.witnessed.again:
                found.append((_resized(launch.grid, axis, size), seen))
        if found:
            return _words_for_few(bench, number, launch, found)
    return ""


def _bracket(
    bench: Bench, plain: Seen, number: int, launch: Launch, axis: int, is_enough: Callable[[Seen], bool]
) -> tuple[int, int | None]:
    """Return a number of programs that is too small, and a larger one that is enough; None if none is."""
    few, before, size = launch.grid[axis], plain, max(2 * launch.grid[axis], 1)
    others = math.prod(launch.grid) // max(launch.grid[axis], 1) if launch.grid[axis] else 1
    while size * others <= MOST_PROGRAMS:
        seen = bench.with_programs(Programs(number, axis, size))
        if seen is None:
            break
        if is_enough(seen):
            return few, size
        if seen.witnessed.outside and not plain.witnessed.outside:
            # So many reach outside, and may have spoiled what the others did right.
            size = _largest_inside(bench, number, axis, few, size)
            inside = bench.with_programs(Programs(number, axis, size)) if size > few else None
            return few, size if inside is not None and is_enough(inside) else None
        if seen.right < before.right + NEARER and seen.written < before.written + NEARER:
            break
        few, before, size = size, seen, 2 * size
    return few, None


def _smallest(
    bench: Bench, number: int, axis: int, few: int, enough: int, is_enough: Callable[[Seen], bool]
) -> int:
    while enough - few > 1:
        middle = (few + enough) // 2
        seen = bench.with_programs(Programs(number, axis, middle))
        if seen is not None and is_enough(seen):
            enough = middle
        else:
            few = middle
    return enough


def _largest_inside(bench: Bench, number: int, axis: int, few: int, many: int) -> int:
    """Return the largest number from `few` on with which no program reads or writes outside; `many` do."""
    while many - few > 1:
        middle = (few + many) // 2
        seen = bench.with_programs(Programs(number, axis, middle))
        if seen is None:
            break
        few, many = (few, middle) if seen.witnessed.outside else (middle, many)
    return few


def _words_for_few(bench: Bench, number: int, launch: Launch, found: Sequence[tuple[Index, Seen]]) -> str:
    last = max(_last_axis(launch.grid), *(_last_axis(grid) for grid, _ in found))
    launched, needed = _numbers(launch.grid, last), " or ".join(_numbers(grid, last) for grid, _ in found)
    launches = f"line {launch.line} {LAUNCHES} {launched} program{'' if launched == '1' else 's'}"
    seen = found[0][1]
    if len(found) == 1 and not launch.is_asked_for:
        idle = bench.idle(number, launch)
        if idle is not None:  # with more programs some other one happens to do what it should
            return (
                f"{launches}, which are enough, but program {idle} stores nothing, and elements are never "
                "written: which elements a program computes is wrong"
            )
        if seen.is_whole:
            return f"{launches}, and {needed} {NEEDED}"
    plain = bench.plain
    if launch.is_asked_for and seen.is_right and plain is not None and plain.leaves_out:
        masked = _left_out(bench.trial, bench.untouched, plain.witnessed)
        if masked:  # the programs are enough: a lane is there for what is left out
            return masked
        return f"{launches}, and {LEFT_OUT}. With {needed} every element is right"
    if launch.is_asked_for and launch.has_turns and seen.is_right:
        # They share the work by tl.num_programs, so that with fewer of them each takes more turns.
        return (
            f"line {launch.line}: {LATER_TURNS}. With {needed} programs in place of {launched}, so that none "
            "needs a second turn, every element is right"
        )
    is_what = "right" if seen.is_right else "written"
    asking = ", which use tl.num_programs" if launch.is_asked_for else ""
    either = ": there are too few, or each does less than it should"
    return f"{launches}{asking}; with {needed} every element is {is_what}{'' if asking else either}"


def _too_many(bench: Bench, plain: Seen, number: int, launch: Launch) -> str:
    """Say with how many programs none reads or writes outside, where the others are not needed at all."""
    if not any(fact.grid == launch.grid for fact in plain.witnessed.outside):
        return ""
    for axis in range(3):
        few = _largest_inside(bench, number, axis, 0, launch.grid[axis])
        found = bench.with_programs(Programs(number, axis, few)) if few else None
        if found is not None and found.is_whole:
            launched, enough = _numbers(launch.grid), _numbers(_resized(launch.grid, axis, few), axis)
            return (
                f"line {launch.line} {LAUNCHES} {launched} programs; with {enough} none reads or writes "
                "outside, and every element is right"
            )
    return ""


def _left_out(trial: Trial, never: Sequence[torch.Tensor], seen: Witnessed) -> str:
    """Say which elements of a vector the mask of a store leaves out, which no other lane stores.

    Of a matrix a lane behind the end of a row has the address of an element of the next one.
    """
    outputs = trial.buffers[-len(never) :] if never else ()
    for buffer, untouched in zip(outputs, never, strict=True):
        tensor = buffer.tensor
        for one in seen.left if min(tensor.strides, default=0) > 0 else ():
            if one.offset != tensor.offset or not one.line or len(tensor.shape) > 1:
                continue
            ends = [tuple(_index(place, tensor)) for place in (one.first, one.last)]
            is_inside = all(at < size for end in ends for at, size in zip(end, tensor.shape, strict=True))
            if is_inside and all(bool(untouched[end]) for end in ends):
                first, last = (", ".join(map(str, at)) for at in ends)
                which = f"`{buffer.name}[{first}]`" + (f" to `[{last}]`" if last != first else "")
                return (
                    f"line {one.line}: the mask of this store leaves out elements that exist, {which}, and "
                    "no other lane stores them"
                )
    return ""


def _never_stored(trial: Trial, never: Sequence[torch.Tensor], seen: Witnessed) -> str:
    """Say which elements at the end of an output no program stores, and which line stores the last one.

    `never` has a mask of them for each output.
    """
    reaches = seen.reaches
    if len(reaches) >= MOST_REACHES:
        return ""
    outputs = trial.buffers[-len(never) :] if never else ()
    for buffer, untouched in zip(outputs, never, strict=True):
        stores = [one for one in reaches if one.writes and one.offset == buffer.tensor.offset]
        words = _end_of(buffer.tensor, untouched, stores)
        if words:
            what, first, size, line = words
            which = f"{what} {first}" if first == size - 1 else f"{what}s {first} to {size - 1}"
            return f"{NEVER_STORED} {which} of `{buffer.name}`; line {line} stores up to {what} {first - 1}"
    return ""


def _end_of(
    tensor: Tensor, untouched: torch.Tensor, stores: Sequence[Reach]
) -> tuple[str, int, int, int] | None:
    """Return what is never stored at the end of a vector or a matrix: its kind, the first one, how many there
    would be, and the line that stores up to there. None if other elements are never stored as well.
    """
    kinds = ("element",) if untouched.dim() == 1 else ("row", "column")
    if not stores or untouched.dim() > len(kinds) or min(tensor.strides) < 1:
        return None
    for axis, kind in enumerate(kinds):
        lines = untouched.movedim(axis, 0).reshape(untouched.shape[axis], -1)
        left = lines.all(1)
        end = int((~left).nonzero().max()) + 1 if not bool(left.all()) else 0
        if not 0 < end < len(left) or bool(lines[:end].any()):
            continue
        # The highest offset has the last row and the last column, whose stride may be the smaller one.
        ends = {one.line for one in stores if _index(one.last, tensor)[axis] == end - 1}
        if len(ends) == 1:
            return kind, end, len(left), ends.pop()
    return None


def _index(offset: int, tensor: Tensor) -> list[int]:
    index, rest = [0] * len(tensor.shape), offset
    for axis in sorted(range(len(tensor.shape)), key=lambda axis: -tensor.strides[axis]):
        index[axis], rest = divmod(rest, tensor.strides[axis])
    return index


def _resized(grid: Index, axis: int, size: int) -> Index:
    x, y, z = (size if at == axis else one for at, one in enumerate(grid))
    return x, y, z


def _last_axis(grid: Index) -> int:
    return max((axis for axis in range(3) if grid[axis] != 1), default=0)


def _numbers(grid: Index, least: int = 0) -> str:
    """Return a grid as text: `5`, or `2 x 5`; up to the axis `least` all are said."""
    return " x ".join(str(size) for size in grid[: max(least, _last_axis(grid)) + 1])
