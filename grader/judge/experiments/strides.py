"""Say which line steps through a tensor with a stride that is not this tensor's, found by experiment.

Only exact evidence counts: the index of an axis has to be split between strides so that nothing is left over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from grader.course.signatures import Shape
from grader.course.spec import PLAIN, Case, Exercise
from grader.judge.experiments.reach import Axis, Followed, Steps, steps
from grader.worker.submission_worker import SubmissionWorker

MOST_CASES = 3  # that are called
MOST_LINES = 3  # that are named for one mistake
MOST_TEXTS = 3  # mistakes that are named
WORDS = ("row", "column")
BY_ONE = "by 1, not by its column stride"


class Laid(NamedTuple):
    """The strides of a tensor in some case, and those that it would have without gaps."""

    strides: Shape
    plain: Shape


Strides = Callable[[str], Laid]  # of a tensor in some case, by its name


class Mistake(NamedTuple):
    """What is wrong with the steps through a tensor, and whether that changes anything with some strides."""

    text: str  # behind "line 7 steps"
    matters: Callable[[Strides], bool]


class Found(NamedTuple):
    """The mistakes of a file, each with the lines that make it."""

    lines: Mapping[Mistake, Sequence[int]]

    def cause(self, strides: Strides) -> str:
        """Say what makes a case with these strides wrong; "" if nothing of it does."""
        said = [_sentence(lines, one.text) for one, lines in self.lines.items() if _matters(one, strides)]
        return "; and ".join(said) if len(said) <= MOST_TEXTS else ""


def _matters(mistake: Mistake, strides: Strides) -> bool:
    try:
        return mistake.matters(strides)
    except IndexError:  # in this case its tensor has fewer axes
        return False


def mistaken_strides(worker: SubmissionWorker, exercise: Exercise, failing: Sequence[Case]) -> Found | None:
    """Return which strides the worker's present file mistakes, from the first failing case that shows it.

    `failing` run in the interpreter, the preferred ones first. None if nothing is found.
    """
    for case in failing[:MOST_CASES]:
        seen = steps(worker, exercise, case)
        found = mistakes(seen) if seen else {}
        if found:
            return Found(found)
    return None


def mistakes(seen: Steps) -> dict[Mistake, list[int]]:
    """Return the mistakes that the steps of all lines show, with their lines."""
    found = dict[Mistake, list[int]]()
    texts = dict[str, Mistake]()
    for one in seen.followed:
        for mistake in _of_others(seen, one) or _of_itself(seen, one):
            lines = found.setdefault(texts.setdefault(mistake.text, mistake), [])
            if one.place.line not in lines:
                lines.append(one.place.line)
    return found


def _of_others(seen: Steps, one: Followed) -> list[Mistake]:
    """Return the strides of other tensors with which a line steps; none if they do not explain its offset."""
    place = one.place
    foreign = {
        axis: times
        for axis, times in one.times.items()
        if times and not (_is_own(one, axis) and place.is_lent)
    }
    if len(foreign) == 1 and (bound := _up_to_a_stride(seen, one, *foreign)):
        return [bound]
    found = dict[Axis, int]()  # the axis of the tensor that each foreign stride is used for
    for axis, times in foreign.items():
        fits = [
            at
            for at in range(len(place.shape))
            if at not in found.values() and _is_split(seen, one, at, times)
        ]
        if not fits:
            return []
        found[axis] = axis.axis if axis.axis in fits else fits[0]
    names = {axis.name for axis in found}
    if len(found) > 1 and len(names) == 1 and all(axis.axis == at for axis, at in found.items()):
        return [_all_of_another(one, names.pop(), list(found.values()))]
    return [_foreign(seen, one, at, axis) for axis, at in found.items()]


def _up_to_a_stride(seen: Steps, one: Followed, axis: Axis) -> Mistake | None:
    """Describe a line that goes on to the row stride of a matrix where its columns end."""
    name, shape = one.place.name, one.place.shape
    row = Axis(name, 0)
    if not one.place.is_lent or len(shape) != 2 or Axis(name, 1) in seen.open or axis.axis:
        return None
    if len(seen.shapes[axis.name]) != 2 or shape[1] == 1:
        return None
    own = one.times.get(row, shape[0] - 1)
    wanted = shape[0] if axis == row else shape[0] - 1
    last = (shape[0] - 1) * seen.strides[name][0] + seen.strides[axis.name][0] - 1
    # With a stride that is the number of columns nothing would be wrong in the first call.
    if own != wanted or one.times[axis] != (wanted if axis == row else 1) or one.last != last:
        return None
    other = axis.name
    return Mistake(
        f"through the columns of `{name}` up to the row stride of `{other}`, not up to their number",
        lambda of: of(other).strides[0] != of(name).plain[0],
    )


def _is_own(one: Followed, axis: Axis) -> bool:
    return axis.name == one.place.name


def _is_split(seen: Steps, one: Followed, at: int, times: int) -> bool:
    """Return whether the highest index of an axis is split between its own stride and another one's."""
    place = one.place
    own = Axis(place.name, at)
    highest = place.shape[at] - 1
    if place.is_lent and own in seen.open:
        return highest > 0 and one.times[own] + times == highest
    # How much of it follows the tensor's own stride is not known. A mask may follow a stride, too, but once.
    return highest > 1 and times == highest


def _all_of_another(one: Followed, name: str, axes: Sequence[int]) -> Mistake:
    """Describe a line that takes several strides of another tensor."""
    mine, is_lent = one.place.name, one.place.is_lent
    return Mistake(
        f"{_tensor(one)} with the strides of `{name}`",
        lambda of: not is_lent or any(of(name).strides[at] != of(mine).strides[at] for at in axes),
    )


def _foreign(seen: Steps, one: Followed, at: int, axis: Axis) -> Mistake:
    place = one.place
    several = at != axis.axis or sum(each.name == place.name for each in seen.open) > 1
    through = _through(place.name, place.shape, at, several) if place.is_lent else _tensor(one)
    name, index, mine = axis.name, axis.axis, place.name
    # What a file allocates has no gaps: in a tensor of that shape without gaps the steps are the same.
    is_like = at == index and tuple(place.shape) == tuple(seen.shapes[name])

    def matters(of: Strides) -> bool:
        if place.is_lent:
            return of(name).strides[index] != of(mine).strides[at]
        return not is_like or of(name).strides[index] != of(name).plain[index]

    return Mistake(
        f"{through} with {_stride(axis, seen.shapes[name], len(place.shape) < 3 or at != index)}", matters
    )


def _tensor(one: Followed) -> str:
    if one.place.is_lent:
        return f"through `{one.place.name}`"
    return (
        f"through `{one.place.name}`, which is no tensor of the call," if one.place.name else "through memory"
    )


def _of_itself(seen: Steps, one: Followed) -> list[Mistake]:
    """Return what is wrong with a line that follows no stride of another tensor."""
    place = one.place
    if not place.is_lent or one.first or any(n for axis, n in one.times.items() if not _is_own(one, axis)):
        return []
    shape, name = place.shape, place.name
    row = Axis(name, 0)
    if row in seen.open and (bound := _up_to_a_stride(seen, one, row)):
        return [bound]
    wanted = {at: shape[at] - 1 for at in range(len(shape)) if Axis(name, at) in seen.open}
    got = {at: one.times[Axis(name, at)] for at in wanted}
    left = one.last - sum(got[at] * seen.strides[name][at] for at in got)
    plain = PLAIN.strides(shape)
    closed = sum((shape[at] - 1) * plain[at] for at in range(len(shape)) if at not in wanted)
    ignored = [at for at in wanted if wanted[at] and not got[at]]
    if ignored and all(got[at] in (0, wanted[at]) for at in wanted):
        if left != closed + sum(wanted[at] * plain[at] for at in ignored) or left <= closed:
            return _doubled(one, wanted, got)
        return [_contiguous(one, ignored)]
    return _doubled(one, wanted, got)


def _contiguous(one: Followed, ignored: Sequence[int]) -> Mistake:
    """Describe a line that takes its tensor for one without gaps."""
    name, shape = one.place.name, one.place.shape
    if len(shape) == 1:
        text = f"through `{name}` by 1, not by its stride"
    elif len(shape) > 2:
        text = f"through `{name}` as if it had no gaps, not by its strides"
    elif ignored == [1]:
        text = f"through the columns of `{name}` {BY_ONE}"
    else:
        text = f"through `{name}` by its number of columns, not by its row stride"
    return Mistake(text, lambda of: any(of(name).strides[at] != of(name).plain[at] for at in ignored))


def _doubled(one: Followed, wanted: Mapping[int, int], got: Mapping[int, int]) -> list[Mistake]:
    """Describe a line that takes the stride of one axis of its tensor for that of another axis."""
    name, shape = one.place.name, one.place.shape
    unlike = [at for at in wanted if got[at] != wanted[at]]
    if len(unlike) != 2:
        return []
    a, b = unlike
    matters = lambda of: bool(of(name).strides[a] != of(name).strides[b])  # noqa: E731
    if got[a] == wanted[b] and got[b] == wanted[a]:
        strides = " and ".join(f"`{name}.stride({at})`" for at in sorted(unlike))
        if len(shape) == 2:
            strides = f"row and column stride of `{name}`"
        return [Mistake(f"through `{name}` with {strides} exchanged", matters)]
    for used, lost in ((a, b), (b, a)):
        if got[lost] == 0 and got[used] == wanted[a] + wanted[b]:
            through = _through(name, shape, lost, several=True)
            text = f"{through} with {_stride(Axis(name, used), shape, in_numbers=True)}"
            return [Mistake(text, matters)]
    return []


def _through(name: str, shape: Shape, at: int, several: bool) -> str:
    """Name a tensor, with the axis that a line steps through where another one could be meant."""
    if len(shape) == 2 and several:
        return f"through the {WORDS[at]}s of `{name}`"
    return f"through axis {at} of `{name}`" if len(shape) > 2 else f"through `{name}`"


def _stride(axis: Axis, shape: Shape, in_numbers: bool) -> str:
    if len(shape) == 2:
        return f"the {WORDS[axis.axis]} stride of `{axis.name}`"
    if len(shape) > 2 and in_numbers:
        return f"`{axis.name}.stride({axis.axis})`"
    return f"the stride of `{axis.name}`"


def _sentence(lines: Sequence[int], text: str) -> str:
    if len(lines) > MOST_LINES:
        return f"a kernel steps {text}"
    numbers = [str(line) for line in sorted(lines)]
    if len(numbers) == 1:
        return f"line {numbers[0]} steps {text}"
    return f"lines {', '.join(numbers[:-1])} and {numbers[-1]} step {text}"
