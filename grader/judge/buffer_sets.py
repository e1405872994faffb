"""Two buffer sets in one arena, which are filled, poisoned and sampled between the timed blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import torch

from grader.course.signatures import Inputs
from grader.course.spec import Arm, Case, Exercise
from grader.judge.correctness import lay_out
from grader.judge.inputs import (
    BITS,
    Placer,
    Rng,
    band_input,
    band_output,
    draw,
    draw_poison,
    draw_sentinel,
    fill,
    is_blank,
    numbers,
    poison_interior,
)
from grader.judge.shapes import shapes_of
from grader.worker.shared_memory import PAGE, TORCH_DTYPES, Arena, Buffer, Call

LINE = 128  # bytes of a cache line
PAGE_LINES = PAGE // LINE
LINES_PER_OUTPUT = 4096
SAMPLED_PAGES = 64  # of all outputs of a block together, unless two of each output are more
FEWEST_PAGES = 2  # of an output: its last page, and one at a place drawn for each block
LEAST_SEED = 1 << 16  # a smaller whole number may be a size
WARM_DATA = 1_000_000  # call numbers from here on give data that no correctness case uses


class BufferSets:
    """The buffers of one timed shape: two sets, each with the inputs and outputs of `calls` calls."""

    def __init__(
        self, arena: Arena, exercise: Exercise, case: Case, calls: int, seed: int, first_draw: int = 0
    ):
        self.arena, self.exercise, self.case, self.calls, self.seed = arena, exercise, case, calls, seed
        self.rng = Rng(seed, f"speed/{exercise.name}/{case.name}/{calls}", arena.device)
        self.draws = first_draw
        self.sentinel = draw_sentinel(self.rng, case.dtype)
        shapes = shapes_of(exercise, case)
        # A plan has one set of numbers for all of its calls.
        self.named: dict[str, float] = {}
        if exercise.numbers:
            self.named = numbers(draw(exercise, case, seed, arena.device, WARM_DATA))
        self.sets: list[list[Call]] = []  # the calls of each set
        self._poison: list[list[int]] = [[], []]  # the bits with which each output of each set was filled
        for k in range(2):
            placer = Placer(k * (arena.size // 2))
            self.sets.append([lay_out(exercise, case, placer, shapes) for _ in range(calls)])
        for inputs, outputs in self.sets[0] + self.sets[1]:
            for buffer in inputs:
                band_input(arena, buffer)
            for buffer in outputs:
                band_output(arena, buffer, self.sentinel)

    def renew_numbers(self) -> bool:
        """Draw other whole numbers, such as seeds, for the calls to come; return whether there are any.

        What was kept of a call with the same numbers would save a part of the work. Each keeps its length in
        bits and its remainder by 16: Triton compiles anew for another.
        """
        whole = {
            name: value for name, value in self.named.items() if type(value) is int and value >= LEAST_SEED
        }
        for name, value in whole.items():
            half = 1 << (value.bit_length() - 1)
            self.named[name] = half + self.rng.whole(half // 16) * 16 + value % 16
        return bool(whole)

    def draw(self) -> list[Inputs]:
        """Draw new inputs of all calls, into memory of the judge's own."""
        first, self.draws = self.draws + 1, self.draws + self.calls
        device = self.arena.device
        return [
            draw(self.exercise, self.case, self.seed, device, WARM_DATA + first + k, narrow=True)
            for k in range(self.calls)
        ]

    def write(self, values: Sequence[Inputs], k: int) -> None:
        """Poison the outputs of set `k`, and copy the inputs to both sets.

        Those of the other set may keep results of other inputs, which are as wrong as poison.
        """
        self.poison(k)
        for one_set in self.sets:
            for (inputs, _), drawn in zip(one_set, values, strict=True):
                fill(self.arena, inputs, drawn)

    def poison(self, k: int) -> None:
        """Poison every output of a set, so that it counts as unwritten."""
        self._poison[k] = [draw_poison(self.rng, self.case.dtype) for _ in self._outputs(k)]
        for buffer, bits in zip(self._outputs(k), self._poison[k], strict=True):
            poison_interior(self.arena, buffer, bits)

    def is_blank(self, k: int) -> bool:
        """Return whether each output of a set is poison still, but for a single value as after `zero_`."""
        views = [self.arena.view(buffer.tensor) for buffer in self._outputs(k)]
        return all(
            is_blank(view, view.view(BITS[view.dtype]) == bits)
            for view, bits in zip(views, self._poison[k], strict=True)
        )

    def bands_whole(self, k: int) -> list[torch.Tensor]:
        """Return whether the bands of a set's outputs still hold the sentinel; gaps are not checked.

        The answers are bools in the arena's memory, each of all calls at once.
        """
        words = BITS[TORCH_DTYPES[self.case.dtype]]
        bands = []
        for buffer in self.sets[k][0][1]:
            end = buffer.tensor.offset + buffer.tensor.span * words.itemsize
            bands += [(buffer.start, buffer.tensor.offset), (end, buffer.stop)]
        return [(self._of_all_calls(*band, words) == self.sentinel).all() for band in bands]

    def inputs_alike(self) -> list[torch.Tensor]:
        """Return whether the inputs of both sets have the same bits, as `bands_whole` does."""
        found = []
        for one, other in zip(*(calls[0][0] for calls in self.sets), strict=True):
            size = one.tensor.span * TORCH_DTYPES[one.tensor.dtype].itemsize
            # The widest words that fill it, because fewer elements are compared faster.
            words = next(
                each for each in (torch.int64, torch.int32, torch.int16) if size % each.itemsize == 0
            )
            mine, theirs = (
                self._of_all_calls(first, first + size, words)
                for first in (one.tensor.offset, other.tensor.offset)
            )
            found.append((mine == theirs).all())
        return found

    def _of_all_calls(self, start: int, stop: int, words: torch.dtype) -> torch.Tensor:
        """Return bytes of the first call of a set as words, and in further rows those of its other calls."""
        whole, size = self.arena.bytes(0, self.arena.size).view(words), words.itemsize
        shape, strides = (self.calls, (stop - start) // size), (self._step // size, 1)
        return whole.as_strided(shape, strides, whole.storage_offset() + start // size)

    @cached_property
    def _step(self) -> int:
        """Bytes from a call to the next: all are laid out in the same way, one behind the other."""
        inputs, outputs = self.sets[0][0]
        return outputs[-1].stop - inputs[0].start

    def _outputs(self, k: int) -> list[Buffer]:
        return [buffer for _, outputs in self.sets[k] for buffer in outputs]

    @property
    def lines(self) -> torch.Tensor:
        """Return the whole arena as cache lines, for indexing with secret_lines."""
        return self.arena.bytes(0, self.arena.size).view(-1, LINE)

    def secret_lines(self, k: int) -> torch.Tensor:
        """Draw the numbers of secret cache lines of every output: on its last page, and on others at places
        drawn for each block.

        The sample is read inside the timed interval, right after another process has used the GPU: few pages
        need few address translations. Two of each output are the fewest: from the last page alone, a result
        of which only the end is ready would look complete.
        """
        first, count = self._output_lines[k]
        pages = max(FEWEST_PAGES, SAMPLED_PAGES // len(first))
        last = (count - PAGE_LINES).clamp(min=0)
        starts = (self.rng.uniform(len(first), pages) * last.clamp(min=1)[:, None]).long()
        starts[:, -1] = last
        lines = self.rng.uniform(len(first), pages, LINES_PER_OUTPUT // pages)
        within = (lines * count.clamp(max=PAGE_LINES)[:, None, None]).long()
        return (first[:, None, None] + starts[:, :, None] + within).flatten()

    @cached_property
    def _output_lines(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The first cache line of each output of a set, and how many lines it has; for both sets."""
        found = []
        for calls in self.sets:
            outputs = [buffer.tensor for _, outputs in calls for buffer in outputs]
            first = [one.offset // LINE for one in outputs]
            count = [max(1, one.span * TORCH_DTYPES[one.dtype].itemsize // LINE) for one in outputs]
            device = self.rng.device
            found.append((torch.tensor(first, device=device), torch.tensor(count, device=device)))
        return found

    def calls_for(self, k: int, arm: Arm) -> list[Call]:
        """Return the calls of a set in a baseline's layouts; for square and contiguous tensors."""

        def laid(buffer: Buffer) -> Buffer:
            layout = arm.layouts.get(buffer.name)
            if layout is None:
                return buffer
            return replace(buffer, tensor=replace(buffer.tensor, strides=layout.strides(buffer.tensor.shape)))

        return [([laid(buffer) for buffer in inputs], outputs) for inputs, outputs in self.sets[k]]
