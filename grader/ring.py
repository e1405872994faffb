"""Two buffer sets in one arena: filled, poisoned and sampled between the blocks of a duel."""

from __future__ import annotations

from dataclasses import replace

import torch

from grader.inputs import (
    Loan,
    Placer,
    Rng,
    band_input,
    band_output,
    draw,
    draw_poison,
    draw_sentinel,
    numbers,
    poison_interior,
)
from grader.judge import lay_out
from grader.lending import PAGE, TORCH_DTYPES, Arena
from grader.shapes import shapes_of
from grader.spec import Arm, Case, Exercise

LINE = 128  # bytes of a cache line
PAGE_LINES = PAGE // LINE
LINES_PER_OUTPUT = 4096
SAMPLED_PAGES = 64  # of all outputs of a block together
WARM_DATA = 1_000_000  # call numbers from here on are data that no case of correctness uses


class Ring:
    """The buffers of one timed shape: two sets, each with the inputs and outputs of `calls` calls."""

    def __init__(
        self, arena: Arena, exercise: Exercise, case: Case, calls: int, seed: int, first_draw: int = 0
    ):
        self.arena, self.exercise, self.case, self.calls, self.seed = arena, exercise, case, calls, seed
        self.rng = Rng(seed, f"duel/{exercise.name}/{case.name}/{calls}", arena.device)
        self.draws = first_draw
        self.sentinel = draw_sentinel(self.rng, case.dtype)
        shapes = shapes_of(exercise, case)
        # One plan serves all rounds, so all calls share their numbers.
        drawn = draw(exercise, case, seed, arena.device, WARM_DATA) if exercise.numbers else {}
        self.named = numbers(drawn)
        self.sets = []  # for each set, a pair (inputs, outputs) of loans for each call
        for k in range(2):
            placer = Placer(k * (arena.size // 2))
            self.sets.append([lay_out(exercise, case, placer, shapes) for _ in range(calls)])
        for inputs, outputs in self.sets[0] + self.sets[1]:
            for loan in inputs:
                band_input(arena, loan)
            for loan in outputs:
                band_output(arena, loan, self.sentinel)

    def fill(self) -> list[dict[str, torch.Tensor]]:
        """Fresh inputs, the same in both sets, and poison in all outputs; returns the judge's own copies."""
        values = []
        for k in range(self.calls):
            self.draws += 1
            drawn = draw(self.exercise, self.case, self.seed, self.arena.device, WARM_DATA + self.draws)
            for one_set in self.sets:
                for loan in one_set[k][0]:
                    self.arena.view(loan.tensor).copy_(drawn[loan.name])
            values.append(drawn)
        for k in range(2):
            self.poison(k)
        return values

    def poison(self, k: int) -> None:
        """Make every output of a set unwritten again."""
        for _, outputs in self.sets[k]:
            for loan in outputs:
                poison_interior(self.arena, loan, draw_poison(self.rng, self.case.dtype))

    @property
    def lines(self) -> torch.Tensor:
        """The whole arena as cache lines, to be indexed by secret_lines."""
        return self.arena.bytes(0, self.arena.size).view(-1, LINE)

    def secret_lines(self, k: int) -> torch.Tensor:
        """Numbers of secret lines of every output, its end always among them, bunched on few pages.

        The sample is taken inside the clock, right after another process has used the GPU: on few pages it
        needs few address translations.
        """
        outputs = [loan for _, outputs in self.sets[k] for loan in outputs]
        pages = max(1, SAMPLED_PAGES // len(outputs))
        picked = []
        for loan in outputs:
            first = loan.tensor.offset // LINE
            count = max(1, loan.tensor.span * TORCH_DTYPES[loan.tensor.dtype].itemsize // LINE)
            starts = (self.rng.uniform(pages, 1) * max(count - PAGE_LINES, 1)).long()
            starts[-1] = max(count - PAGE_LINES, 0)
            within = (self.rng.uniform(pages, LINES_PER_OUTPUT // pages) * min(PAGE_LINES, count)).long()
            picked.append(first + (starts + within).flatten())
        return torch.cat(picked)

    def calls_for(self, k: int, arm: Arm):
        """The calls of a set in the layouts that a baseline wants; for square and contiguous tensors."""

        def laid(loan: Loan) -> Loan:
            layout = arm.layouts.get(loan.name)
            if layout is None:
                return loan
            return replace(loan, tensor=replace(loan.tensor, strides=layout.strides(loan.tensor.shape)))

        return [([laid(loan) for loan in inputs], outputs) for inputs, outputs in self.sets[k]]
