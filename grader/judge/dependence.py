"""On which inputs a wrong output element depends, found by changing parts of the inputs one after the other.

The function is called again with other values in one part of one input, such as a column: what changes then
depends on that part. The same changes in the fp64 reference say on which parts it should depend. No text of
the file is looked at.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from grader.course.spec import PLAIN, Case, Exercise, Reason
from grader.judge import comparison
from grader.judge.inputs import tensors
from grader.judge.trial import Trial
from grader.worker.submission_worker import SubmissionWorker
from grader.worker.witness.record import Influence, Reach

MOST_CASES = 2  # that are looked at
MOST_CALLS = 90  # of the function, in all
MOST_ACCESSES = 80_000  # loads and stores of all these calls, some five seconds
PARTS = 8  # into which an axis is cut at once
FEW = 2  # parts of an axis that are cut again, because an element depends on these alone
MOST_LINES = 3  # that are named
MOST_BETWEEN = 3  # tensors that are named where an input is loaded
NEARLY_ALL = 0.75  # of the parts of an axis
MOST_RUNS = 3  # of parts that follow each other, on which a wrong index lets an element depend
SAMPLED = 16  # wrong elements that are looked at
# A change of an output by this share of its value is one; what rounding or the order of a sum does is less.
STRONG = 0.02
STRONGER = (64.0, -64.0)  # times other values: a ReLU hides small changes, and those of one sign
NONE = 1e-9  # so much smaller a value in the reference, in fp64, is a zero that was not rounded to it
CHANCE = 0.2  # so many changes may be alike although the input has a wrong influence
ALIKE = 0.02  # two changes that differ by this share are the same


DISAGREE = "these two lines do not agree"
IN_PLACE_OF_ANOTHER = 0  # the rank of what is said of a part on which an element depends in place of another


class Part(NamedTuple):
    """Indices `start` up to `stop` of one axis of an input."""

    name: str
    axis: int
    start: int
    stop: int


class Response(NamedTuple):
    """How the sampled output elements change with a part, in the function and in the reference; fp64."""

    part: Part
    got: torch.Tensor
    wanted: torch.Tensor


class Element(NamedTuple):
    """A wrong output element: its name, its place among the sampled ones, and what counts as large there."""

    name: str
    at: int
    scale: float


def dependence(
    worker: SubmissionWorker, exercise: Exercise, failing: Sequence[Case], until: float = math.inf
) -> str:
    """Say on which inputs a wrong element depends, and on which it should; "" if that is as it should be.

    `worker` has the unedited file. `failing` are wrong cases that run in the interpreter, the preferred ones
    first; fp32 alone is looked at, because rounding to 16 bits hides small changes, and no hidden case, of
    which nothing may be shown. Nothing is called after `until`, in seconds of the monotonic clock.
    """
    if exercise.follow is not None:  # its outputs depend on a random choice
        return ""
    shown = [one for one in failing if one.dtype == "fp32" and not one.allocates and not one.label]
    left = MOST_CALLS
    for case in shown[:MOST_CASES]:
        experiment = _Experiment.begun(worker, exercise, case, left, until)
        if experiment is None:
            continue
        responses = experiment.responses()
        left = experiment.left
        words = _misplaced(experiment, responses) or _contrast(experiment, responses)
        if words:
            return words
    return ""


class _Experiment:
    """The calls of one case: with its inputs, and with one part after the other changed."""

    def __init__(
        self, worker: SubmissionWorker, trial: Trial, k: int, wrong: torch.Tensor, left: int, until: float
    ):
        self._worker, self._trial, self._k, self.left, self._until = worker, trial, k, left, until
        self._wrong = wrong  # indices of the sampled elements, one in each row
        self._values = trial.values
        self._inputs = tensors(trial.values)
        other = tensors(Trial(trial.exercise, trial.case, worker.session.seed, drawn=1).values)
        self._others = {
            name: torch.where(value == other[name], value + 1, other[name])
            for name, value in self._inputs.items()
        }
        self.shapes = {
            name: tuple(value.shape)
            for name, value in self._inputs.items()
            if not trial.case.layouts.get(name, PLAIN).expanded
        }
        self.named = (0, len(wrong) - 1)  # the sampled elements of which parts are named
        self.wanted = self._sampled(trial.expected.reference)
        self.got = self.wanted
        self.lines: dict[str, list[int]] = {}  # that load from an input
        self.reached: dict[str, list[Reach]] = {}  # by the loads from an input
        self.programs = 1  # of the launch that has most
        self.between: dict[str, list[int]] = {}  # that load from a tensor of the file's own

    @classmethod
    def begun(
        cls, worker: SubmissionWorker, exercise: Exercise, case: Case, left: int, until: float
    ) -> _Experiment | None:
        """Call the function as it is; None if that shows no wrong number to look at."""
        trial = Trial(exercise, case, worker.session.seed)
        called = trial.call(worker, witnessed=True)
        if called is None:
            return None
        reaches = worker.witnessed.reaches
        left = min(left, MOST_ACCESSES // max(1, worker.witnessed.accesses))
        finding, _ = comparison.examine(exercise, case, trial.expected, called.outputs, called.untouched)
        if finding is None or finding.reason not in (Reason.MISMATCH, Reason.PRECISION):
            return None
        k = exercise.outputs.index(finding.output)
        got, reference = called.outputs[k].double(), trial.expected.reference[k]
        # Zeros say little: a maximum with 0 hides on what its operand depends.
        counts = reference.abs() > NONE * got.abs()
        wrong = (finding.bad & counts & got.isfinite() & (got != 0.0)).nonzero()
        if not len(wrong):
            return None
        half = SAMPLED // 2
        if len(wrong) > SAMPLED:
            wrong = torch.cat((wrong[:half], wrong[-half:]))
        experiment = cls(worker, trial, k, wrong, left, until)
        experiment.got = experiment._sampled(called.outputs)
        experiment.reached = {name: trial.loads_of(reaches, name) for name in experiment.shapes}
        experiment.lines = {
            name: sorted({one.line for one in found}) for name, found in experiment.reached.items()
        }
        grids = [math.prod(one.grid) for one in worker.witnessed.launches]
        experiment.programs = max(grids, default=1)
        for one in reaches:
            if one.offset < 0 and not one.writes and one.tensor.name:
                experiment.between.setdefault(one.tensor.name, []).append(one.line)
        return experiment

    @property
    def output(self) -> str:
        """The name of the wrong output."""
        return self._trial.exercise.outputs[self._k]

    def elements(self) -> Iterator[Element]:
        """Give the elements of which parts are named."""
        for at in self.named:
            index = self._wrong[at].tolist()
            scale = max(abs(float(self.wanted[at])), abs(float(self.got[at])))
            yield Element(f"{self.output}[{', '.join(map(str, index))}]", at, scale)

    def responses(self) -> list[Response]:
        """Change each input part by part; parts are cut again where an element depends on few of an axis.

        A part is cut only while enough calls are left for all of its parts. Empty if they do not suffice to
        change every input.
        """
        axes = [(name, axis) for name, shape in self.shapes.items() for axis in range(len(shape))]
        if self.left < PARTS * len(axes):
            return []
        whole = {(name, axis): Part(name, axis, 0, self.shapes[name][axis]) for name, axis in axes}
        found = {axis: self._of_parts(part) for axis, part in whole.items()}
        if self.left <= 0:
            return []
        while self.left >= PARTS:
            again = next(((axis, part) for axis in axes for part in self._to_cut(found[axis])), None)
            if again is None:
                break
            axis, part = again
            at = [one.part for one in found[axis]].index(part)
            found[axis][at : at + 1] = self._of_parts(part)
        return [one for axis in axes for one in found[axis]]

    def _of_parts(self, part: Part) -> list[Response]:
        return [one for one in map(self._response, _cut(part)) if one]

    def _to_cut(self, of_axis: Sequence[Response]) -> list[Part]:
        """Return the parts of an axis to cut: an element depends on few, or should, and it may be on less.

        Or it depends on all as it should but on a few, of which a piece may be missing.
        """
        wide = list[Part]()
        for at in self.named:
            got = [one.part for one in of_axis if one.got[at] != 0.0]
            wanted = [one.part for one in of_axis if one.wanted[at] != 0.0]
            unlike = [
                one.part
                for one in of_axis
                if 0.0 < STRONG * abs(float(one.wanted[at])) < abs(float(one.got[at] - one.wanted[at]))
            ]
            for parts in (got, wanted, unlike):
                wide += [one for one in parts if len(parts) <= FEW and one.stop - one.start > 1]
        return wide

    def _response(self, part: Part) -> Response | None:
        """Return how the elements change with a part; None if the call fails or none is left."""
        if time.monotonic() > self._until:  # what was not called cannot be told apart from the rest
            self.left = 0
        if self.left <= 0 or torch.equal(
            self._inputs[part.name][_of(part)], self._others[part.name][_of(part)]
        ):
            return None
        self.left -= 1
        return self._changed(part, 1.0)

    def is_deaf(self, part: Part, at: int) -> bool:
        """Return whether a sampled element does not change with a part, however much that changes."""
        changed = [self._changed(part, factor) for factor in STRONGER]
        return all(one is None or float(one.got[at]) == 0.0 for one in changed)

    def _changed(self, part: Part, factor: float) -> Response | None:
        """Return the response to other values in a part, times a factor; None if the call fails."""
        changed = self._inputs[part.name].clone()
        changed[_of(part)] = factor * self._others[part.name][_of(part)]
        self._trial.values = {**self._values, part.name: changed}
        try:
            called = self._trial.call(self._worker)
            wanted = comparison.expect(self._trial.exercise, self._trial.case, self._trial.values)
        finally:
            self._trial.values = self._values
        if called is None:
            return None
        got = self._sampled(called.outputs) - self.got
        return Response(part, got.nan_to_num(), self._sampled(wanted.reference) - self.wanted)

    def way(self, part: Part, at: int) -> Influence | None:
        """Return the way of a part into a sampled element; None if it is not found."""
        followed = self._trial.way(*part, self.output, self._wrong[at].tolist())
        called = self._trial.call(self._worker, followed=followed)
        return self._worker.witnessed.influence if called else None

    def _sampled(self, outputs: Sequence[torch.Tensor]) -> torch.Tensor:
        return outputs[self._k].double()[tuple(self._wrong.T)]


def _of(part: Part) -> tuple[slice, ...]:
    """Return the index of a part of its input."""
    return (slice(None),) * part.axis + (slice(part.start, part.stop),)


def _cut(part: Part) -> list[Part]:
    """Cut a part into at most PARTS parts."""
    step = -(-(part.stop - part.start) // PARTS)
    starts = range(part.start, part.stop, step) if step else ()
    return [part._replace(start=start, stop=min(start + step, part.stop)) for start in starts]


def _misplaced(experiment: _Experiment, responses: Sequence[Response]) -> str:
    """Say which part an element depends on and should not, or the other way round; "" if none is found."""
    found = []
    for element in experiment.elements():
        for name, shape in experiment.shapes.items():
            for axis in range(len(shape)):
                mine = [one for one in responses if (one.part.name, one.part.axis) == (name, axis)]
                words = _of_axis(element, mine, shape)
                if words and not _is_cut_off(element, mine):
                    found.append((words, name))
    # One place in place of another says most, and that an input should not matter at all says least.
    found.sort(key=lambda one: one[0].rank)
    for words, name in found:
        if all(experiment.is_deaf(part, at) for part, at in words.missing):
            shape, reached = experiment.shapes[name], experiment.reached[name]
            where = (
                _never_reached(words, shape, reached, experiment.programs)
                or _way(experiment, words, shape)
                or _loaded(name, experiment.lines[name], experiment.between)
            )
            return f"{words.text}{where}"
    return ""


def _way(experiment: _Experiment, words: _Words, shape: Sequence[int]) -> str:
    """Say on which way an element gets what it should not depend on; "" if that is not seen."""
    if words.extra is None:
        return ""
    part, at = words.extra
    found = experiment.way(part, at)
    if found is None:
        return ""
    name = _named([part], shape)
    if found.loaded:
        return (
            f"; line {found.loaded} loads what line {found.stored} has stored of {name}: "
            f"{DISAGREE} on where it lies"
        )
    return f"; line {found.line} uses {name} for it" if found.line else ""


def _is_cut_off(element: Element, responses: Sequence[Response]) -> bool:
    """Return whether a ReLU in the wrong place may hide on what an element depends.

    It should depend on nearly all of an axis, and depends on none where other elements depend on some, or the
    other way round, or on parts here and there that differ from theirs.
    """
    got, wanted = (
        torch.stack([getattr(one, name) for one in responses]) != 0.0 for name in ("got", "wanted")
    )
    whole = wanted.double().mean(dim=0) >= NEARLY_ALL
    mine, others = got[:, element.at], got[:, whole]
    if not whole[element.at]:
        return False
    if not mine.any():
        return bool(others.any())
    runs = int((mine[1:] & ~mine[:-1]).sum()) + int(mine[0])
    differs = bool((others != mine[:, None]).any())
    return bool((~others.any(dim=0)).any()) or (runs > MOST_RUNS and differs)


def _loaded(name: str, lines: Sequence[int], between: Mapping[str, Sequence[int]]) -> str:
    """Say where an input is loaded, and tensors `between` it and the output; "" where that is not known, or
    in many lines.
    """
    every = [(name, lines), *((other, sorted({*where})) for other, where in between.items())]
    if not lines or any(len(where) > MOST_LINES for _, where in every):
        return ""
    if len(every) > MOST_BETWEEN:  # where the input itself is loaded then says more
        every = every[:1]
    said = [
        f"`{one}` is loaded in {'lines' if len(where) > 1 else 'line'} {_listed([*map(str, where)])}"
        for one, where in every
    ]
    # Its load may be right, and what is made of it on its way to the output wrong.
    return f"; {' and '.join(said)}: follow what is made of it from there"


def _never_reached(words: _Words, shape: Sequence[int], reached: Sequence[Reach], programs: int) -> str:
    """Say that no program loads what an element of a vector should depend on; "" if some may.

    Where it depends on something else the address is wrong; of one program nothing is said then, which may
    lack a load.
    """
    lines = sorted({one.line for one in reached})
    is_another = words.rank == IN_PLACE_OF_ANOTHER
    if len(shape) != 1 or len(lines) != 1 or not words.missing or (is_another and programs < 2):
        return ""
    first, last = min(one.first for one in reached), max(one.last for one in reached)
    if any(part.start <= last and first < part.stop for part, _ in words.missing):
        return ""
    name = words.missing[0][0].name
    loads = f"; line {lines[0]} loads {name}[{first}..{last}] and nothing else, whichever program runs"
    if not is_another:
        return f"{loads}: its mask, or its address, leaves out the rest"
    return f"{loads}: what its address adds to the pointer lacks the place where a program's block begins"


class _Words(NamedTuple):
    """What is said of an element; parts that it does not change with, each with its sampled place."""

    rank: int
    text: str
    missing: Sequence[tuple[Part, int]] = ()
    extra: tuple[Part, int] | None = None  # on which it depends, and should not


def _of_axis(element: Element, responses: Sequence[Response], shape: Sequence[int]) -> _Words | None:
    large = STRONG * element.scale
    got = [one for one in responses if float(one.got[element.at]) != 0.0]
    wanted = [one for one in responses if float(one.wanted[element.at]) != 0.0]
    extra = [one for one in got if one not in wanted and abs(float(one.got[element.at])) > large]
    missing = [one for one in wanted if one not in got and abs(float(one.wanted[element.at])) > large]
    if not extra and not missing:
        return None
    deaf = [(one.part, element.at) for one in missing[:: max(1, len(missing) - 1)]]
    name = responses[0].part.name
    also = (extra[0].part, element.at) if extra else None
    has = f"{element.name} depends on {_named([one.part for one in got], shape)}" if got else ""
    if not wanted:
        return _Words(2, f"{has}, and should not depend on `{name}`", extra=also)
    should = f"should depend on {_named([one.part for one in wanted], shape)}"
    if not got:
        return _Words(1, f"{element.name} does not depend on `{name}`, and {should}", deaf)
    return _Words(
        IN_PLACE_OF_ANOTHER if extra and missing else 1,
        f"{has}, and {should}{'' if missing else ' alone'}",
        deaf,
        also,
    )


def _named(parts: Sequence[Part], shape: Sequence[int]) -> str:
    """Name parts of one axis: `y[3]`, `columns 0 to 31 of b`, `k[:, 3, :]`."""
    runs = [[parts[0].start, parts[0].stop]]
    for part in parts[1:]:
        if part.start == runs[-1][1]:
            runs[-1][1] = part.stop
        else:
            runs.append([part.start, part.stop])
    name, axis = parts[0].name, parts[0].axis
    more = " and others" if len(runs) > MOST_RUNS else ""
    is_matrix = len(shape) == 2
    range_words = "{} to {}" if is_matrix else "{}..{}"
    ranges = ", ".join(str(a) if b == a + 1 else range_words.format(a, b - 1) for a, b in runs[:MOST_RUNS])
    if is_matrix:
        many = "s" if len(runs) > 1 or runs[0][1] > runs[0][0] + 1 else ""
        return f"{('row', 'column')[axis]}{many} {ranges}{more} of `{name}`"
    index = ", ".join(ranges if k == axis else ":" for k in range(len(shape)))
    return f"{name}[{index}]{more}"


def _contrast(experiment: _Experiment, responses: Sequence[Response]) -> str:
    """Say with which inputs the elements change as they should, and with which not.

    "" unless there are both, and for each input all changes say the same.
    """
    right, wrong, ratios = list[str](), list[str](), list[torch.Tensor]()
    scale = torch.maximum(experiment.wanted.abs(), experiment.got.abs())
    for name in experiment.shapes:
        mine = [one for one in responses if one.part.name == name]
        if not mine:
            continue
        got, wanted = (torch.stack(values) for values in zip(*((r.got, r.wanted) for r in mine), strict=True))
        # Where a ReLU lets nothing through, before or after the change, the change says little.
        shown = ((experiment.got + got).abs() > NONE * scale) & (
            (experiment.wanted + wanted).abs() > NONE * scale
        )
        large = (wanted.abs() > STRONG * scale) & shown
        got, wanted = got[large], wanted[large]
        if not got.numel():
            continue
        alike = (got - wanted).abs() <= ALIKE * wanted.abs()
        if bool(alike.all()):
            right.append(f"`{name}`")
        elif float(alike.double().mean()) < CHANCE:
            wrong.append(f"`{name}`")
            ratios.append(got / wanted)
        else:
            return ""
    if not right or not wrong:
        return ""
    follows = f"{experiment.output} changes with {_listed(right)} as it should"
    low, high = (float(end) for end in ratios[0].aminmax())
    if len(wrong) == 1 and high - low <= ALIKE * abs(high):
        times = float(ratios[0].median())
        much = f"{times:.3g} times as much as it should" if times else "not at all"
        return f"{follows}, and {much} with {wrong[0]}{_where(experiment, wrong[0])}"
    return (
        f"{follows}, but not with {_listed(wrong)}{_where(experiment, wrong[0]) if len(wrong) == 1 else ''}"
    )


def _where(experiment: _Experiment, name: str) -> str:
    plain = name.strip("`")
    return _loaded(plain, sorted({one.line for one in experiment.reached.get(plain, ())}), {})


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
