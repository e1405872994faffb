"""One case with inputs in lent memory: how much of it a file gets right, without a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import torch

from grader.course.signatures import Shape
from grader.course.spec import Case, Exercise, Inputs
from grader.judge import comparison
from grader.judge.correctness import lay_out
from grader.judge.inputs import (
    Placer,
    Rng,
    band_input,
    draw,
    fill,
    first_change_outside,
    held,
    numbers,
    poison_output,
    put_back,
    same_bits,
    shapes_in,
    untouched,
)
from grader.results.outcome import Outcome
from grader.worker.messages import Kept, OneProgram, Programs
from grader.worker.shared_memory import TORCH_DTYPES, Arena, Buffer
from grader.worker.submission_worker import SubmissionWorker
from grader.worker.witness.record import Followed, Reach, Witnessed

MOST_ELEMENTS = 1 << 16  # of a case that is called many times, by the product of its sizes
# In bytes: what reaches farther out of a tensor is seen by its address, and each call fills these bands.
NARROW_GUARD = 16 * 1024
LIMIT_S = 5.0  # of one call: an edited file may have an endless loop
DRAWN_CALLS = 3_000_000  # call numbers from here on are drawn for trials
SMALLEST = 1e-30  # divisor of a relative error
MOST_WRONG = 0.99  # share of a call that is not all right, at most
LOOSELY = 2e-2  # relative error of an element that is right but for its digits


def elements(case: Case) -> int:
    """Return the product of a case's sizes."""
    return math.prod(size for size in case.params.values() if isinstance(size, int) and size > 0)


class Called(NamedTuple):
    """The outputs of a call, for each a mask of the elements that were never written, and what else it wrote.

    `is_clean` is whether the inputs and the memory around the outputs are what they were.
    """

    outputs: list[torch.Tensor]
    untouched: list[torch.Tensor]
    is_clean: bool


class Trial:
    """A case with inputs in lent memory, and what is expected of it."""

    def __init__(
        self,
        exercise: Exercise,
        case: Case,
        seed: int,
        start: int = 0,
        drawn: int = 0,
        strides: Mapping[str, Shape] = MappingProxyType({}),
    ):
        """`start` is a place in lent memory, in bytes; another number `drawn` gives other inputs.

        Tensors in `strides`, by name, have these strides and not those of the case.
        """
        self.exercise, self.case, self._seed = exercise, case, seed
        self.values = draw(exercise, case, seed, "cpu", DRAWN_CALLS + drawn)
        self.expected = comparison.expect(exercise, case, self.values)
        placer = Placer(start, strides, NARROW_GUARD)
        self._inputs, self._outputs = lay_out(exercise, case, placer, shapes_in(self.values))
        self._laid: tuple[Inputs, list[torch.Tensor], list[torch.Tensor]] | None = None  # before a call

    def call(
        self,
        worker: SubmissionWorker,
        witnessed: bool = False,
        traced: bool = False,
        limit_s: float = LIMIT_S,
        programs: Programs | None = None,
        bounds: bool = False,
        only: OneProgram | None = None,
        kept: Kept | None = None,
        most: int | None = None,
        products_idle: bool = False,
        selected: Mapping[str, int] = MappingProxyType({}),
        compared: tuple[int, int] = (0, 1),
        followed: Followed | None = None,
    ) -> Called | None:
        """Call the worker's present file, with another number of `programs` if given; None if that fails.

        With an `only` program no other one of its launch runs, and no later launch. Launches that are `kept`
        are repeated as they were recorded.

        `worker.witnessed` says afterwards what was seen of its loads and stores, if they were `witnessed`;
        only those outside of a tensor, if `bounds`; or where NaN and inf came from, if they were `traced`.
        What is watched fails after `most` loads and stores. With `products_idle`, tl.dot adds nothing. Of a
        text with other expressions beside its own, those that are `selected` run; see `SubmissionWorker.go`
        for those that are `compared`. How a part that is `followed` gets into an element is in
        `worker.witnessed`, too.
        """
        arena = worker.arena
        lent, poisoned = self._lay(arena)
        calls = [(self._inputs, self._outputs)]
        named = numbers(self.values)
        plan = worker.prepare(
            self.exercise,
            calls,
            limit_s,
            named=named,
            allocates=self.case.allocates,
            separate=self.case.separate,
            configs=self.case.configs,
            programs=programs,
            only=only,
            kept=kept,
            filled=True,  # what no program has written is not right by chance
        )
        if isinstance(plan, Outcome) or worker.go(
            plan,
            limit_s,
            witnessed=witnessed,
            traced=traced,
            bounds=bounds,
            most=most,
            products_idle=products_idle,
            selected=selected,
            compared=compared,
            followed=followed,
        ):
            return None
        is_clean = all(
            same_bits(held(arena, buffer), before) for buffer, before in zip(self._inputs, lent, strict=True)
        ) and all(
            first_change_outside(arena, *pair) is None for pair in zip(self._outputs, poisoned, strict=True)
        )
        masks = [untouched(arena, *pair) for pair in zip(self._outputs, poisoned, strict=True)]
        return Called([arena.view(buffer.tensor).clone() for buffer in self._outputs], masks, is_clean)

    def _lay(self, arena: Arena) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Fill the inputs and poison the outputs; return the memory of both, as it is before a call."""
        if self._laid is None or self._laid[0] is not self.values:
            for buffer in self._inputs:
                band_input(arena, buffer)
            fill(arena, self._inputs, self.values)
            lent = [held(arena, buffer) for buffer in self._inputs]
            rng = Rng(self._seed, "edited", "cpu")
            poisoned = [poison_output(arena, buffer, rng) for buffer in self._outputs]
            self._laid = self.values, lent, poisoned
        else:  # to copy it takes a part of the time
            _, lent, poisoned = self._laid
            for buffer, before in (
                *zip(self._inputs, lent, strict=True),
                *zip(self._outputs, poisoned, strict=True),
            ):
                put_back(arena, buffer, before.view(torch.uint8))
        return lent, poisoned

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The places of the inputs and the outputs."""
        return (*self._inputs, *self._outputs)

    def way(self, name: str, axis: int, start: int, stop: int, output: str, index: Sequence[int]) -> Followed:
        """Return a part of an input, indices `start` up to `stop` of an axis, and an element of an output."""
        given = next(one.tensor for one in self._inputs if one.name == name)
        place = next(one.tensor for one in self._outputs if one.name == output)
        size = TORCH_DTYPES[self.case.dtype].itemsize
        at = sum(k * stride for k, stride in zip(index, place.strides, strict=True))
        number = 0
        for k, many in zip(index, place.shape, strict=True):
            number = number * many + k
        return Followed(
            given.offset, size, tuple(given.shape), tuple(given.strides), axis, start, stop,
            place.offset + at * size, number,
        )  # fmt: skip

    def loads_of(self, reaches: Sequence[Reach], name: str) -> list[Reach]:
        """Return how far loads from an input reach, of those that were seen in a call."""
        offsets = {buffer.tensor.offset for buffer in self._inputs if buffer.name == name}
        return [one for one in reaches if one.offset in offsets and not one.writes]

    def right(
        self,
        worker: SubmissionWorker,
        witnessed: bool = False,
        limit_s: float = LIMIT_S,
        bounds: bool = False,
    ) -> float:
        """Return how much of the worker's present file is right: 1.0 for all of it, less than 0 if it fails.

        Elements count when they are written, more when they are right but for digits, and most within the
        tolerance. If `witnessed` or `bounds`, a file that reads or writes outside of a tensor is not all
        right; if `witnessed`, nor is one that races.
        """
        called = self.call(worker, witnessed, limit_s=limit_s, bounds=bounds)
        return self.share(called, worker.witnessed)

    def errors(self, called: Called) -> list[float]:
        """Return for each output of a call the mean of the relative errors of its elements, 1 at most."""
        found = []
        for got, right in zip(called.outputs, self.expected.reference, strict=True):
            error = (got.double() - right).abs() / right.abs().clamp(min=SMALLEST)
            found.append(float(error.nan_to_num(nan=1.0).clamp(max=1.0).mean()))
        return found

    def distance(self, called: Called) -> float:
        """Return the largest relative Frobenius norm of the errors of a call's outputs; NaN counts as 0."""
        found = [0.0]
        for got, right in zip(called.outputs, self.expected.reference, strict=True):
            size = float(torch.linalg.vector_norm(right))
            error = float(torch.linalg.vector_norm(got.double().nan_to_num() - right))
            found.append(error / size if size else 0.0)
        return max(found)

    def right_outputs(self, called: Called) -> list[bool]:
        """Return for each output of a call whether it is right; none of a random choice."""
        if self.exercise.follow is not None or self.exercise.bad_choice is not None:
            return []
        asked = self.exercise, self.case, self.expected
        others = [one.to(got.dtype) for one, got in zip(self.expected.reference, called.outputs, strict=True)]
        return [
            comparison.examine(*asked, [*others[:k], got, *others[k + 1 :]])[0] is None
            for k, got in enumerate(called.outputs)
        ]

    def right_of_one(self, called: Called | None, seen: Witnessed) -> float | None:
        """Return `share` of what one program alone has written; None if that is right, or nothing.

        Elements that are NaN do not count as written: so do those of the file's own tensors that nobody has.
        """
        if called is None or not called.is_clean:
            return -1.0 if called is None else 0.0
        masks = self.written(called)
        if not any(bool(mask.any()) for mask in masks):
            return None
        both = zip(called.outputs, self.expected.reference, masks, strict=True)
        filled = [torch.where(mask, got, right.to(got.dtype)) for got, right, mask in both]
        finding, _ = comparison.examine(self.exercise, self.case, self.expected, filled)
        if finding is None:
            return None if seen == Witnessed() else MOST_WRONG
        k = self.exercise.outputs.index(finding.output)
        near = self._is_near(called, k)[masks[k]]
        strict = 1.0 - finding.wrong / max(int(masks[k].sum()), 1)
        return min(MOST_WRONG, 0.5 * strict + 0.5 * float(near.double().mean()))

    def written(self, called: Called) -> list[torch.Tensor]:
        """Return masks of the elements of a call's outputs that some program has written, and not NaN."""
        both = zip(called.outputs, called.untouched, strict=True)
        return [~(untouched | torch.isnan(got)) for got, untouched in both]

    def is_near(self, called: Called) -> bool:
        """Return whether every element is right but for its last digits."""
        near = (self._is_near(called, k).all() for k in range(len(called.outputs)))
        return called.is_clean and all(map(bool, near))

    def _is_near(self, called: Called, k: int) -> torch.Tensor:
        reference = self.expected.reference[k]
        return (called.outputs[k].double() - reference).abs() <= LOOSELY * reference.abs()

    def share(self, called: Called | None, seen: Witnessed) -> float:
        """Return how much of a call is right, in which `seen` was found: see `right`."""
        if called is None or not called.is_clean:
            return -1.0 if called is None else 0.0
        finding, _ = comparison.examine(self.exercise, self.case, self.expected, called.outputs)
        if finding is None:
            return 1.0 if seen == Witnessed() else MOST_WRONG
        k = self.exercise.outputs.index(finding.output)
        near = self._is_near(called, k)
        strict = 1.0 - finding.wrong / max(finding.bad.numel(), 1)
        written = 1.0 - float(called.untouched[k].double().mean())
        return min(MOST_WRONG, 0.4 * strict + 0.4 * float(near.double().mean()) + 0.2 * written)
