"""One case with inputs in lent memory: how much of it a file gets right, without a verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from grader.course.spec import Case, Exercise
from grader.judge import comparison
from grader.judge.correctness import lay_out
from grader.judge.inputs import (
    Placer,
    Rng,
    band_input,
    draw,
    fill,
    first_change_outside,
    numbers,
    poison_output,
    same_bits,
    shapes_in,
    untouched,
)
from grader.results.outcome import Outcome
from grader.worker.shared_memory import Buffer
from grader.worker.submission_worker import SubmissionWorker

LIMIT_S = 5.0  # of one call: an edited file may have an endless loop
DRAWN_CALLS = 3_000_000  # call numbers from here on are drawn for trials
LOOSELY = 2e-2  # relative error of an element that is right but for its digits


def elements(case: Case) -> int:
    """Return the product of a case's sizes."""
    return math.prod(size for size in case.params.values() if isinstance(size, int) and size > 0)


@dataclass
class Trial:
    """A case with inputs in lent memory, and what is expected of it."""

    exercise: Exercise
    case: Case
    seed: int
    start: int  # in lent memory, bytes
    inputs: list[Buffer] = field(default_factory=list)
    outputs: list[Buffer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.values = draw(self.exercise, self.case, self.seed, "cpu", DRAWN_CALLS)
        self.expected = comparison.expect(self.exercise, self.case, self.values)
        self.inputs, self.outputs = lay_out(
            self.exercise, self.case, Placer(self.start), shapes_in(self.values)
        )

    def right(self, worker: SubmissionWorker) -> float:
        """Return how much of the worker's present file is right: 1.0 for all of it, less than 0 if it fails.

        Elements count when they are written, more when they are right but for digits, and most within the
        tolerance.
        """
        arena = worker.arena
        for buffer in self.inputs:
            band_input(arena, buffer)
        fill(arena, self.inputs, self.values)
        lent = [arena.bytes(buffer.start, buffer.stop).clone() for buffer in self.inputs]
        rng = Rng(self.seed, "edited", "cpu")
        poisoned = [poison_output(arena, buffer, rng) for buffer in self.outputs]
        calls = [(self.inputs, self.outputs)]
        plan = worker.prepare(self.exercise, calls, LIMIT_S, named=numbers(self.values))
        failed = plan if isinstance(plan, Outcome) else worker.go(plan, LIMIT_S)
        if failed:
            return -1.0
        for buffer, before in zip(self.inputs, lent, strict=True):
            if not same_bits(arena.bytes(buffer.start, buffer.stop), before):
                return 0.0
        for buffer, before in zip(self.outputs, poisoned, strict=True):
            if first_change_outside(arena, buffer, before) is not None:
                return 0.0
        masks = [untouched(arena, *pair) for pair in zip(self.outputs, poisoned, strict=True)]
        got = [arena.view(buffer.tensor).clone() for buffer in self.outputs]
        finding, _ = comparison.examine(self.exercise, self.case, self.expected, got)
        if finding is None:
            return 1.0
        k = self.exercise.outputs.index(finding.output)
        reference = self.expected.reference[k]
        near = (got[k].double() - reference).abs() <= LOOSELY * reference.abs()
        strict = 1.0 - finding.wrong / max(finding.bad.numel(), 1)
        written = 1.0 - float(masks[k].double().mean())
        return min(0.99, 0.4 * strict + 0.4 * float(near.double().mean()) + 0.2 * written)
